"""How a broker becomes controller: it creates `/controller` and raises the epoch in one transaction.

Source: KafkaZkClient.registerControllerAndIncrementControllerEpoch (3.9). After a lost answer Kafka compares ids and
epoch; here the ephemeral's owner must be this session, too.
"""

from collections.abc import Sequence
from typing import NamedTuple

from klamm.model.ids import BrokerId
from klamm.zk.errors import NodeExists, NoNode, ZkCode, error_of
from klamm.zk.fenced import ControllerMoved
from klamm.zk.operations import Create, Delete, Op, Set
from klamm.zk.port import ZooKeeperClient
from klamm.zk.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)

_RACE_CODES = (ZkCode.NODE_EXISTS, ZkCode.BAD_VERSION)
"""Error codes of the transaction if another broker was faster."""


class ControllerEpoch(NamedTuple):
    """A won election: the epoch, and the version of its znode, which fences all later writes."""

    epoch: int
    version: int


async def register_controller(client: ZooKeeperClient, broker: BrokerId, now_ms: int) -> ControllerEpoch:
    """Become controller. Raises ControllerMoved if another broker was faster, ZkError for other errors."""
    epoch, version = await _read_epoch(client)
    return await _register(client, broker, now_ms, epoch, version, [])


async def replace_controller(client: ZooKeeperClient, broker: BrokerId, now_ms: int, epoch: int) -> ControllerEpoch:
    """Become controller in place of the controller of `epoch`.

    `/controller` is deleted and created in one transaction, so no other broker can win an election in between. The old
    controller notices by its watch, and resigns; its writes are fenced from the transaction on. Raises as
    `register_controller`, and ControllerMoved if the epoch changed.
    """
    now, version = await _read_epoch(client)
    if now != epoch:
        raise ControllerMoved(
            f"{CONTROLLER_EPOCH} changed from {epoch} to {now} since the handover was requested: another controller "
            "was elected"
        )
    is_held = await client.exists(CONTROLLER) is not None
    return await _register(client, broker, now_ms, epoch, version, [Delete(CONTROLLER)] if is_held else [])


async def _register(
    client: ZooKeeperClient, broker: BrokerId, now_ms: int, epoch: int, version: int, before: Sequence[Op]
) -> ControllerEpoch:
    """Create `/controller` and raise the epoch in one transaction, after the operations in `before`."""
    won = epoch + 1
    results = await client.multi(
        [
            *before,
            Create(CONTROLLER, encode_controller(broker, now_ms), ephemeral=True),
            Set(CONTROLLER_EPOCH, encode_controller_epoch(won), version),
        ]
    )
    refusal = next((r.code for r in results if r.code is not ZkCode.OK), None)
    if refusal in _RACE_CODES or (before and refusal is ZkCode.NO_NODE):
        return await _resolve_race(client, broker, won)
    if refusal is not None:
        raise error_of(refusal, CONTROLLER)
    stat = results[-1].stat
    assert stat is not None, "ZooKeeper returns a stat for each set that succeeds"
    return ControllerEpoch(won, stat.version)


async def _read_epoch(client: ZooKeeperClient) -> tuple[int, int]:
    """The controller epoch and the version of its znode, which is created with 0 if it does not exist."""
    try:
        data, stat = await client.get(CONTROLLER_EPOCH)
    except NoNode:
        try:
            _, stat = await client.create(CONTROLLER_EPOCH, encode_controller_epoch(0))
        except NodeExists:
            return await _read_epoch(client)
        return 0, stat.version
    return decode_controller_epoch(data), stat.version


async def _resolve_race(client: ZooKeeperClient, broker: BrokerId, won: int) -> ControllerEpoch:
    """The epoch if `/controller` shows that we won and only the answer was lost; else raises ControllerMoved."""
    try:
        data, stat = await client.get(CONTROLLER)
        epoch_data, epoch_stat = await client.get(CONTROLLER_EPOCH)
    except NoNode as error:
        raise ControllerMoved(
            f"another broker was elected controller at the same time, and its {CONTROLLER} is deleted again"
        ) from error
    winner = decode_controller(data)
    ours = winner is not None and winner.broker == broker and stat.ephemeral_owner == client.session_id
    if ours and decode_controller_epoch(epoch_data) == won:
        return ControllerEpoch(won, epoch_stat.version)
    raise ControllerMoved(f"{CONTROLLER} names broker {winner.broker if winner else '?'}, which was elected first")
