"""Nodes as child processes, without starting one."""

from klamm.embedded.nodes import START_TIMEOUT_S, local_properties
from klamm.embedded.zookeeper import STARTUP_TIMEOUT_S


def test_local_nodes_wait_for_a_zookeeper_that_starts_with_them_as_long_as_its_start_may_take() -> None:
    connection_timeout_s = int(local_properties("127.0.0.1:2181", 3)["zookeeper.connection.timeout.ms"]) / 1000

    assert STARTUP_TIMEOUT_S <= connection_timeout_s <= START_TIMEOUT_S
