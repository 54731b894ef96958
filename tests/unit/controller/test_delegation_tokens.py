"""Expired delegation tokens are deleted, and brokers are notified."""

import json

from tests.support.controller_room import Room

from klamm.controller.events import DelegationTokenExpiry
from klamm.controller.handlers.cluster_services import TIMER, begin_expiring_tokens, on_token_expiry
from klamm.controller.settings import ControllerSettings
from klamm.model.ids import BrokerId
from klamm.zk.delegation_tokens import TOKEN_CHANGES, TOKENS
from klamm.zk.operations import Create

SETTINGS = ControllerSettings(BrokerId(1), token_check_interval_ms=60_000)


def put_token(room: Room, name: str, max_ms: int, expiry_ms: int) -> None:
    payload = {"version": 3, "owner": "User:a", "tokenId": name, "maxTimestamp": max_ms, "expiryTimestamp": expiry_ms}
    room.ensemble.apply([Create(f"{TOKENS}/{name}", json.dumps(payload).encode())])


async def opened(settings: ControllerSettings = SETTINGS) -> Room:
    room = await Room.open(settings=settings)
    room.term.now_ms = lambda: 1_000
    await room.client.ensure_path(TOKENS)
    return room


async def test_expired_delegation_tokens_are_deleted_and_a_change_notification_is_written() -> None:
    room = await opened()
    put_token(room, "over", 5_000, 999)
    put_token(room, "used-up", 999, 5_000)
    put_token(room, "good", 5_000, 1_000)
    room.ensemble.apply([Create(f"{TOKENS}/odd", b"{")])

    await room.handle(on_token_expiry, DelegationTokenExpiry())

    assert sorted(room.ensemble.nodes[TOKENS].children) == ["good", "odd"]
    changes = room.ensemble.nodes[TOKEN_CHANGES].children
    assert {c.rstrip("0123456789") for c in changes} == {"token_change_"}
    assert {room.ensemble.nodes[f"{TOKEN_CHANGES}/{c}"].data for c in changes} == {b"over", b"used-up"}
    assert "odd" in room.entries("refused")[-1].facts["why"]
    room.term.timers.close()


async def test_the_next_delegation_token_expiry_check_runs_after_the_configured_interval() -> None:
    room = await opened()
    await room.handle(on_token_expiry, DelegationTokenExpiry())

    assert TIMER in room.term.timers._waiting
    room.term.timers.close()


async def test_delegation_token_expiry_is_not_checked_without_a_secret_key() -> None:
    room = await opened(ControllerSettings(BrokerId(1)))
    begin_expiring_tokens(room.term)

    assert TIMER not in room.term.timers._waiting


async def test_the_delegation_token_expiry_check_succeeds_without_any_token_znode() -> None:
    room = await Room.open(settings=SETTINGS)
    await room.handle(on_token_expiry, DelegationTokenExpiry())

    assert room.entries("refused") == []
    room.term.timers.close()
