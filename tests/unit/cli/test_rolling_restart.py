"""`klamm rolling-restart`: the order, the command, and what counts as a doubt."""

from collections.abc import Iterator, Sequence

import pytest

from klamm.cli.admin.rolling_restart import (
    RENEWED_AFTER,
    command_words,
    process_ends,
    restart_order,
    why_not_whole,
)
from klamm.cli.commands.rolling_restart import _parse_ids
from klamm.model.cluster import Address, Broker, Cluster, Partition, Topic
from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(n) for n in numbers)


def cluster(
    *isrs: tuple[int, ...], controller: int = 2, brokers: tuple[int, ...] = (1, 2, 3), leader: int = 1
) -> Cluster:
    """A cluster whose topic has a partition with replicas 1, 2, 3 for each ISR."""
    partitions = {i: Partition(BrokerId(leader), ids(1, 2, 3), ids(*isr)) for i, isr in enumerate(isrs)}
    found = {BrokerId(b): Broker(Address(f"host-{b}", 9092), None) for b in brokers}
    return Cluster(BrokerId(controller), found, {"orders": Topic("orders", None, False, partitions)})


def test_a_rolling_restart_proceeds_in_order_of_broker_ids_with_the_controller_last() -> None:
    assert restart_order(cluster(), None) == [1, 3, 2]


def test_a_rolling_restart_restarts_only_the_requested_brokers_each_once() -> None:
    assert restart_order(cluster(), ids(3, 2, 3)) == [3, 2]


def test_a_rolling_restart_refuses_a_requested_broker_that_is_not_alive() -> None:
    with pytest.raises(UsageError, match=r"broker 7 is not alive. Live brokers: 1, 2, 3."):
        restart_order(cluster(), ids(1, 7))


def test_placeholders_of_the_restart_command_are_replaced_after_splitting_into_words() -> None:
    words = command_words("ssh {host} 'systemctl restart kafka@{id}' {port}", BrokerId(4), Address("a b", 9094))

    assert words == ["ssh", "a b", "systemctl restart kafka@4", "9094"]


@pytest.mark.parametrize(("template", "message"), [("", "is empty"), ("  ", "is empty"), ("sh -c 'x", "No closing")])
def test_a_malformed_restart_command_is_refused(template: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        command_words(template, BrokerId(1), Address("h", 1))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (cluster((1, 2, 3)), None),
        (cluster((1, 2, 3), brokers=(1, 2)), "broker 3 is not alive"),
        (cluster((1, 2, 3), controller=-1), "there is no controller"),
        (cluster((1, 2, 3), (1, 3)), "not in sync: orders-1 (replicas 1, 2, 3, in sync 1, 3, leader 1)"),
        (cluster((1, 2, 3), leader=-1), "not in sync: orders-0 (replicas 1, 2, 3, in sync 1, 2, 3, leader -1)"),
    ],
)
def test_the_check_before_a_restart_finds_a_missing_broker_controller_leader_or_isr_member(
    found: Cluster, why: str | None
) -> None:
    assert why_not_whole(found, ids(1, 2, 3)) == why


def test_a_rolling_restart_names_at_most_three_partitions_that_are_not_in_sync() -> None:
    why = why_not_whole(cluster(*[(1,)] * 5), ids(1, 2, 3))

    assert why is not None
    assert why.count("orders-") == 3
    assert why.endswith("and 2 more")


def test_the_brokers_option_accepts_broker_ids_and_refuses_other_text() -> None:
    assert _parse_ids(None) is None
    assert _parse_ids(" 2,1,2") == [2, 1]
    for text in ("", "1,", "one", "-1"):
        with pytest.raises(UsageError, match="is not a broker id"):
            _parse_ids(text)


class Process:
    """A broker that closes connections when it ends, after so many looks, and those that are idle for too many."""

    def __init__(self, ends_at: int, max_idle: int) -> None:
        self.now = 0
        self.ends_at = ends_at
        self.max_idle = max_idle
        self.is_open = 0

    def connect(self) -> "Connection":
        self.is_open += 1
        return Connection(self, self.now)

    def looks(self, count: int) -> Iterator[None]:
        for self.now in range(count):
            yield


class Connection:
    def __init__(self, process: Process, since: int) -> None:
        self.process = process
        self.since = since

    def is_quiet(self) -> bool:
        now = self.process.now
        return now - self.since < self.process.max_idle and not self.since <= self.process.ends_at <= now

    def close(self) -> None:
        self.process.is_open -= 1

    def discard(self) -> None:
        self.close()

    def send(self, buffers: Sequence[object]) -> None:
        raise NotImplementedError

    def receive(self, count: int) -> bytes:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("ends_at", "max_idle", "ends"),
    [
        (10**9, 10**9, False),
        (10**9, 2 * RENEWED_AFTER, False),
        (10 * RENEWED_AFTER + 7, 2 * RENEWED_AFTER, True),
        (10 * RENEWED_AFTER - 1, 2 * RENEWED_AFTER, True),
        (0, 10**9, True),
    ],
)
def test_a_connection_that_the_broker_closes_because_it_is_idle_is_no_restart(
    ends_at: int, max_idle: int, ends: bool
) -> None:
    process = Process(ends_at, max_idle)

    assert process_ends(process.connect(), process.connect, process.looks(20 * RENEWED_AFTER)) is ends
    assert process.is_open == 0
