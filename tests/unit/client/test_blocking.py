"""The blocking client at ports that are not those of brokers."""

import pytest
from tests.support.scripted_brokers import ScriptedCluster, ScriptedWorld

from klamm.client.blocking import BlockingConnection, BlockingSettings
from klamm.client.errors import ConnectionLost, NotConnected
from klamm.client.versions import Request
from klamm.model.cluster import Address
from klamm.wire.api import ApiKey
from klamm.wire.messages import MetadataRequest

ANSWERS = {
    "the alert of TLS": bytes.fromhex("15030300020246"),
    "HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_port_that_does_not_speak_kafkas_protocol_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    world = ScriptedWorld(ScriptedCluster({}))
    monkeypatch.setattr(world.cluster, "answer", lambda broker, frame: [answer])
    at = Address(*next(iter(world.cluster.brokers.values())))

    with pytest.raises(ConnectionLost, match=rf"{at} does not speak Kafka's protocol: .*port of a broker's PLAINTEXT"):
        BlockingConnection(world, at, BlockingSettings("test", 1.0, 1.0))
    assert world.connections[0].closed


@pytest.mark.parametrize("is_in_flight", [True, False])
def test_a_request_in_flight_is_not_delivered_after_its_blocking_connection_is_closed(is_in_flight: bool) -> None:
    world = ScriptedWorld(ScriptedCluster({}))
    at = Address(*next(iter(world.cluster.brokers.values())))
    connection = BlockingConnection(world, at, BlockingSettings("test", 1.0, 1.0))
    connection.send(Request(ApiKey.METADATA, MetadataRequest([], allow_auto_topic_creation=False)))
    if not is_in_flight:
        connection.receive()

    connection.close()

    assert world.connections[0].closed
    assert world.connections[0].discarded == is_in_flight


def test_a_connection_that_fails_without_a_text_names_the_kind_of_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ScriptedWorld(ScriptedCluster({}))
    at = Address(*next(iter(world.cluster.brokers.values())))

    def refuse(host: str, port: int, connect_timeout_s: float, answer_timeout_s: float) -> None:
        raise OSError

    monkeypatch.setattr(world, "connect", refuse)

    with pytest.raises(NotConnected, match=rf"^no connection to {at}: OSError$"):
        BlockingConnection(world, at, BlockingSettings("test", 1.0, 1.0))
