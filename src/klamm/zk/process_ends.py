"""How the processes of brokers ended, as their crash guards recorded it.

Klamm's own znodes, `/klamm/process_ends/BROKER`: `{"version":1,"signal":9,"timestamp":"1700000000000"}`, or `status`
with the exit status instead of `signal`, or neither where the kernel did not say. The guard writes the record before it
closes the session of the process; the next process of the broker removes it. Apache Kafka's brokers ignore it.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from klamm.model.ids import BrokerId
from klamm.zk.errors import NoNode, NotEmpty, ZkCode
from klamm.zk.port import ZooKeeperClient
from klamm.zk.znodes import PROCESS_ENDS, Int32, MalformedZnode, decode_json

_TOLD_BY: Final = "its crash guard reported it"


class _ProcessEnd(msgspec.Struct):
    signal: Int32 | None = None
    status: Int32 | None = None


def process_end_path(broker: BrokerId) -> str:
    """Return the path of the record about the broker's last process."""
    return f"{PROCESS_ENDS}/{broker}"


async def begin_process_record(client: ZooKeeperClient, broker: BrokerId) -> None:
    """Remove the record about the broker's earlier process, or its content where another client keeps znodes below it.

    Raises ZkError where ZooKeeper does not allow it.
    """
    await client.ensure_paths([PROCESS_ENDS])
    path = process_end_path(broker)
    try:
        await client.delete(path)
    except NoNode:
        return
    except NotEmpty:
        await client.set(path, None)


async def read_process_ends(client: ZooKeeperClient, registered: Mapping[BrokerId, int]) -> dict[BrokerId, str]:
    """Return for each broker whose process was reported as ended how it ended, as a phrase.

    `registered`: the epoch of the broker's registration that is gone, 0 where it is unknown. A record that is older
    than the registration is about an earlier process: it is left out.
    """
    read = await client.get_many([process_end_path(b) for b in registered])
    ends: dict[BrokerId, str] = {}
    for (broker, epoch), result in zip(registered.items(), read, strict=True):
        if result.code is not ZkCode.OK or result.stat is None or result.stat.mzxid < epoch:
            continue  # there is no record of this process, or an ACL hides it: the cause stays unknown
        try:
            ends[broker] = _phrase(decode_json(result.path, result.data, _ProcessEnd))
        except MalformedZnode:
            continue
    return ends


def _phrase(end: _ProcessEnd) -> str:
    """Return how the process ended, for example `its process ended (signal 9); its crash guard reported it`."""
    how = f" (signal {end.signal})" if end.signal is not None else ""
    if end.status is not None:
        how = f" (exit status {end.status})"
    return f"its process ended{how}; {_TOLD_BY}"
