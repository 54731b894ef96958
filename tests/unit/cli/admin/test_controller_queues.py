"""Request queues and standbys from a metrics page, and unanswered control requests from a journal."""

import pytest

from klamm.cli.admin.controller import Queue, Standby, parse_queues, parse_standby
from klamm.explain.unanswered import Unanswered, unanswered
from klamm.telemetry.exposition import render
from klamm.telemetry.journal_reader import Entry
from klamm.telemetry.meters import Reading, Timer

ACTIVE = "kafka_controller_kafkacontroller_activecontrollercount"
SIZE = "kafka_controller_controllerchannelmanager_queuesize"
TIME = "kafka_controller_controllerchannelmanager_requestrateandqueuetimems"


def page(*readings: Reading) -> str:
    """A metrics page with these readings."""
    return render(readings, "text/plain")[0].decode()


def test_controller_queue_depths_and_waiting_times_are_parsed_from_metrics_per_broker() -> None:
    timer = Timer()
    for ms in (1.0, 3.0):
        timer.observe(ms)
    found = parse_queues(
        "b1:1", page(Reading(ACTIVE, 1), *(Reading(SIZE, n, (str(n),)) for n in (10, 2)), Reading(TIME, timer, ("2",)))
    )

    assert [(q.broker, q.depth, q.sent) for q in found] == [("2", 2, 2), ("10", 10, 0)]
    assert found[0].waited_ms["0.99"] == 3.0
    assert found[1] == Queue("b1:1", "10", 10, 0, {})


def test_a_node_that_is_not_controller_has_no_controller_queues() -> None:
    assert parse_queues("b1:1", page(Reading(ACTIVE, 0), Reading(SIZE, 3, ("2",)))) == []


STANDBY = "klamm_controller_standby_"
STANDBYS = {
    "the controller": ({ACTIVE: 1}, Standby("b1:1", "controller", 0, 0, 0)),
    "one that follows": (
        {
            ACTIVE: 0,
            f"{STANDBY}current": 1,
            f"{STANDBY}partitions": 7,
            f"{STANDBY}changed_znodes": 3,
            f"{STANDBY}lag_ms": 40,
        },
        Standby("b1:1", "current", 7, 3, 40),
    ),
    "one that reads for the first time": (
        {ACTIVE: 0, f"{STANDBY}current": 0, f"{STANDBY}partitions": 5},
        Standby("b1:1", "reading", 5, 0, 0),
    ),
    "one without a mirror": ({ACTIVE: 0, f"{STANDBY}current": 0}, Standby("b1:1", "none", 0, 0, 0)),
}


@pytest.mark.parametrize(("metrics", "expected"), STANDBYS.values(), ids=STANDBYS)
def test_what_a_node_has_in_memory_for_its_election_is_parsed_from_its_metrics(
    metrics: dict[str, int], expected: Standby
) -> None:
    readings = [Reading(name, value) for name, value in metrics.items()]

    assert parse_standby("b1:1", page(*readings)) == expected


def entry(seq: int, kind: str, **facts: object) -> Entry:
    return Entry(seq * 1000, 1, 1, seq, "c", kind, facts)


def test_only_control_requests_without_a_response_are_listed_as_unanswered() -> None:
    lines = [
        entry(1, "request", broker=2, api="UPDATE_METADATA", count=5),
        entry(2, "request", broker=2, api="LEADER_AND_ISR", count=7, causes=["a", "b"]),
        entry(3, "response", broker=2, api="UPDATE_METADATA"),
        entry(4, "response", broker=2, api="LEADER_AND_ISR", failed="closed"),
    ]

    assert unanswered(lines) == [Unanswered(2, "LEADER_AND_ISR", 2000, 7, 2, "closed")]
    assert unanswered(lines, now_ms=9000)[0].age_ms == 7000
    assert unanswered([*lines, entry(5, "found", dead=[2])]) == []
    assert unanswered([*lines, entry(5, "resigned")]) == []
