"""An operator's request for a new controller: `/klamm/next_controller`, `{"version":1,"broker":100,"epoch":7}`.

The named node replaces the controller in one transaction, and removes the request; a request for an earlier epoch is
only removed. The znode is ephemeral: it ends with the session of the requester, so that nothing happens after the
requester gave up. Apache Kafka's brokers ignore it.
"""

from typing import NamedTuple

import msgspec

from klamm.model.ids import BrokerId
from klamm.zk.errors import BadVersion, NodeExists, NoNode
from klamm.zk.port import ZooKeeperClient
from klamm.zk.znodes import NEXT_CONTROLLER, Int32, decode_json, encode_json


class HandoverRequest(NamedTuple):
    """A stored request to make `broker` the controller."""

    broker: BrokerId
    epoch: int
    """The controller epoch at the time of the request; in another epoch the request is void."""
    version: int
    zxid: int
    """The zxid of the write that made the request; each request has its own."""


class _HandoverRequest(msgspec.Struct):
    broker: Int32
    epoch: Int32


async def request_handover(client: ZooKeeperClient, broker: BrokerId, epoch: int) -> None:
    """Store a request that this broker becomes controller.

    Raises NodeExists if another session has stored a request; a repetition of one's own is ignored.
    """
    await client.ensure_path(NEXT_CONTROLLER.rpartition("/")[0])
    request = encode_json({"version": 1, "broker": broker, "epoch": epoch})
    try:
        await client.create(NEXT_CONTROLLER, request, ephemeral=True)
    except NodeExists:
        there = await client.exists(NEXT_CONTROLLER)
        if there is None or there.ephemeral_owner != client.session_id:
            raise


async def watch_handover_request(client: ZooKeeperClient) -> HandoverRequest | None:
    """The stored handover request, or None; its next change is watched. Raises MalformedZnode."""
    while True:
        try:
            content, stat = await client.get(NEXT_CONTROLLER, watch=True)
        except NoNode:
            if await client.exists(NEXT_CONTROLLER, watch=True) is None:
                return None
            continue
        request = decode_json(NEXT_CONTROLLER, content, _HandoverRequest)
        return HandoverRequest(BrokerId(request.broker), request.epoch, stat.version, stat.mzxid)


async def remove_handover_request(client: ZooKeeperClient, version: int = -1) -> None:
    """Remove the handover request of this version (-1: any), unless it was removed or replaced."""
    try:
        await client.delete(NEXT_CONTROLLER, version)
    except (NoNode, BadVersion):
        return  # another did, or another asks
