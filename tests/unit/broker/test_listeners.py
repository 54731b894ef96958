"""Ports are taken before the logs are loaded; a port that is taken already is named with the key to change."""

import errno

import pytest

from klamm.broker.lifecycle import CannotStart
from klamm.broker.listeners import BoundListeners, cannot_bind
from klamm.config.node_config import NodeConfig, parse_node_config
from klamm.model.ids import BrokerId
from klamm.net.server import Server, ServerLimits
from klamm.runtime.world import real_world

WORLD = real_world()


def config(listeners: str, *lines: str) -> NodeConfig:
    text = "\n".join(["zookeeper.connect=z:1", f"listeners={listeners}", *lines])
    return parse_node_config(text.encode(), "server.properties")


def bound(made: NodeConfig) -> BoundListeners:
    return BoundListeners(Server(WORLD.network, ServerLimits()), made, WORLD.network)


async def test_a_listener_configured_with_port_0_advertises_the_port_that_was_bound() -> None:
    made = config("PLAINTEXT://127.0.0.1:0")
    listeners = bound(made)
    await listeners.start()
    (endpoint,) = listeners.advertised_broker(BrokerId(1), made).endpoints
    assert endpoint.host == "127.0.0.1"
    assert endpoint.port > 0
    await listeners.close()


async def test_a_listener_added_to_the_config_is_not_advertised_before_the_next_start() -> None:
    made = config("PLAINTEXT://127.0.0.1:0")
    listeners = bound(made)
    await listeners.start()
    later = config(
        "PLAINTEXT://127.0.0.1:0,SECOND://127.0.0.1:1",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT",
    )
    assert [e.listener for e in listeners.advertised_broker(BrokerId(1), later).endpoints] == ["PLAINTEXT"]
    await listeners.close()


async def test_a_listener_port_in_use_is_reported_with_the_config_line_to_change() -> None:
    made = config("PLAINTEXT://127.0.0.1:0")
    first = bound(made)
    await first.start()
    (endpoint,) = first.advertised_broker(BrokerId(1), made).endpoints
    late = bound(config(f"PLAINTEXT://127.0.0.1:{endpoint.port}"))
    await late.start()  # nobody listens there yet
    await first.open(_no_requests, lambda _: False)
    with pytest.raises(CannotStart) as refused:
        await bound(config(f"PLAINTEXT://127.0.0.1:{endpoint.port}")).start()
    assert str(refused.value) == (
        f"Cannot bind 127.0.0.1:{endpoint.port}: address already in use. Stop the process that uses it,"
        ' or change "listeners" (server.properties, line 2).'
    )
    with pytest.raises(CannotStart, match=r"Cannot listen on .*: address already in use. Stop the process"):
        await late.open(_no_requests, lambda _: False)
    await late.close()
    await first.close()


def _no_requests(*_args: object) -> None:
    raise AssertionError("nobody asks")


def test_the_error_for_an_unavailable_listener_address_does_not_suggest_a_port_conflict() -> None:
    error = OSError(errno.EADDRNOTAVAIL, "asyncio's own words")
    assert str(cannot_bind("10.1.1.1", 9092, error, '"listeners" (f, line 1)')) == (
        'Cannot bind 10.1.1.1:9092: cannot assign requested address. Change "listeners" (f, line 1).'
    )
