"""How many connections a server takes, of all clients and of one address."""

from tests.unit.net.desk import Desk, serve
from tests.unit.net.transports import RecordingTransport, connect

from klamm.net.connection_table import ConnectionLimits, ConnectionTable


def dial(table: ConnectionTable, desk: Desk, host: str, listener: str = "PLAINTEXT") -> RecordingTransport:
    return connect(serve(desk, table, listener), (host, 1))


async def test_a_connection_above_max_connections_per_ip_is_closed(desk: Desk) -> None:
    table = ConnectionTable(ConnectionLimits(max_per_address=1, per_address={"h2": 2}))

    first, second = dial(table, desk, "h1"), dial(table, desk, "h1")
    others = [dial(table, desk, "h2") for _ in range(3)]

    assert [c.aborted for c in (first, second, *others)] == [False, True, False, False, True]


async def test_a_disconnect_allows_a_new_connection_under_max_connections(desk: Desk) -> None:
    table = ConnectionTable(ConnectionLimits(max_connections=1))
    dial(table, desk, "h1").protocol.connection_lost(None)

    assert not dial(table, desk, "h2").aborted
    assert dial(table, desk, "h3").aborted


async def test_an_inter_broker_connection_above_max_connections_closes_the_least_recently_used_client(
    desk: Desk,
) -> None:
    table = ConnectionTable(ConnectionLimits(max_connections=2), protected_listener="REPLICATION")
    first, second = dial(table, desk, "h1"), dial(table, desk, "h2")
    first.protocol.last_active = second.protocol.last_active + 1

    broker = dial(table, desk, "b", listener="REPLICATION")

    assert [c.aborted for c in (first, second, broker)] == [False, True, False]
    assert len(table) == 2
