"""kazoo, as a witness of what klamm's ZooKeeper client does and as another client of the same ensemble."""

from collections.abc import Iterator
from contextlib import contextmanager

from kazoo.client import KazooClient


@contextmanager
def kazoo_client(connect_string: str) -> Iterator[KazooClient]:
    """A connected client; its session ends with the block."""
    client = KazooClient(connect_string)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()
