"""Scripted brokers on real sockets, for readers that live in other processes, as Spark's workers do."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.support.scripted_brokers import ScriptedCluster


class _Handler(socketserver.BaseRequestHandler):
    server: "_Server"

    def handle(self) -> None:
        stream = self.request.makefile("rb")
        while size := stream.read(4):
            frame = stream.read(int.from_bytes(size))
            try:
                with self.server.cluster.lock:
                    parts = self.server.cluster.answer(self.server.broker, frame)
            except ConnectionError:  # the script wants this connection to break
                return
            self.request.sendall(b"".join(parts))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, cluster: ScriptedCluster, broker: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cluster = cluster
        self.broker = broker


@contextmanager
def serve_brokers(cluster: ScriptedCluster) -> Iterator[str]:
    """Serve each broker of the cluster on its own port, and register these ports; yields the bootstrap servers."""
    with ExitStack() as stack:
        for broker in cluster.brokers:
            server = stack.enter_context(_Server(cluster, broker))
            cluster.brokers[broker] = ("127.0.0.1", server.server_address[1])
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            stack.callback(server.shutdown)
        yield ",".join(f"{host}:{port}" for host, port in cluster.brokers.values())
