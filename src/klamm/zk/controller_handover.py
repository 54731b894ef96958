"""An operator's request who shall be controller: `/klamm/next_controller`, `{"version":1,"broker":100,"epoch":7}`.

The node it names replaces the controller in one transaction, and removes the request; one for an epoch that is
over is only removed. It goes with the session of whoever asks: nobody who gave up waiting gets it later. Apache Kafka's
brokers never look there.
"""

from typing import NamedTuple

import msgspec

from klamm.model.ids import BrokerId
from klamm.zk.errors import BadVersion, NodeExists, NoNode
from klamm.zk.port import ZooKeeperClient
from klamm.zk.znodes import NEXT_CONTROLLER, Int32, decode_json, encode_json


class HandoverRequest(NamedTuple):
    broker: BrokerId
    epoch: int
    """The controller epoch in which it was asked for, the only one in which it counts."""
    version: int
    zxid: int
    """Of the write that brought it: another request has another one."""


class _HandoverRequest(msgspec.Struct):
    broker: Int32
    epoch: Int32


async def request_handover(client: ZooKeeperClient, broker: BrokerId, epoch: int) -> None:
    """Raises NodeExists where somebody else asks; it may be this session, where only the answer was lost."""
    await client.ensure_path(NEXT_CONTROLLER.rpartition("/")[0])
    request = encode_json({"version": 1, "broker": broker, "epoch": epoch})
    try:
        await client.create(NEXT_CONTROLLER, request, ephemeral=True)
    except NodeExists:
        there = await client.exists(NEXT_CONTROLLER)
        if there is None or there.ephemeral_owner != client.session_id:
            raise


async def watch_handover_request(client: ZooKeeperClient) -> HandoverRequest | None:
    """None where nobody asks; its coming is told. Raises MalformedZnode."""
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
    try:
        await client.delete(NEXT_CONTROLLER, version)
    except (NoNode, BadVersion):
        return  # another did, or another asks
