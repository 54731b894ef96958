"""What the tier of whole nodes takes for a late answer, and what it allows to take long."""

import pytest

from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.history import TierHistory, TopicFacts
from klamm.sim.cluster_tier.invariants.requests import (
    RestAnswer,
    requests_are_answered_correctly,
    requests_are_answered_in_time,
)
from klamm.sim.cluster_tier.invariants.timing import acknowledgements_are_prompt, polls_are_answered_in_time
from klamm.sim.cluster_tier.trace import Acknowledged, Polled, Send
from klamm.sim.history.history import History

ORDERS = TopicPartition("orders", 0)


def history(*, sound_since_s: float = 60.0) -> TierHistory:
    found = TierHistory(History(), {})
    found.topics["orders"] = TopicFacts(2, 1, is_synced=False, has_retention=False)
    found.sound_since_s = sound_since_s
    return found


def acknowledged(began_s: float, took_s: float, *, acks: int = -1, offset: int = 5) -> Acknowledged:
    send = Send("producer", ORDERS, (b"a",), acks, began_s)
    send.acknowledged_s, send.offset = began_s + took_s, offset
    return Acknowledged(send)


def polled(
    asked_s: float, took_s: float, *, wait_s: float = 0.5, position: int = 5, follower: int | None = None
) -> Polled:
    return Polled(
        "consumer", ORDERS, 1, 0, position, (), 5, 0, follower=follower, asked_s=asked_s, wait_s=wait_s,
        answered_s=asked_s + took_s,
    )  # fmt: skip


@pytest.mark.parametrize(("took_s", "acks", "is_late"), [(0.01, -1, False), (0.5, -1, True), (0.5, 1, False)])
def test_a_late_acknowledgement_from_all_in_sync_replicas_is_a_violation(
    took_s: float, acks: int, is_late: bool
) -> None:
    assert (acknowledgements_are_prompt(history(), acknowledged(70.0, took_s, acks=acks)) is not None) is is_late


def test_acknowledgements_are_not_timed_amid_faults_nor_after_a_change_of_the_partition() -> None:
    late = acknowledged(70.0, 2.0)
    assert acknowledgements_are_prompt(history(sound_since_s=71.0), late) is None

    changing = history()
    changing.on_isr(ORDERS, (), 69.0)

    assert acknowledgements_are_prompt(changing, late) is None


@pytest.mark.parametrize(("took_s", "is_late"), [(0.5, False), (0.6, False), (0.7, True)])
def test_a_poll_that_outlasts_its_wait_is_a_violation(took_s: float, is_late: bool) -> None:
    assert (polls_are_answered_in_time(history(), polled(70.0, took_s)) is not None) is is_late


@pytest.mark.parametrize(("acknowledged_s", "is_late"), [(69.0, True), (70.1, True), (70.45, False)])
def test_a_poll_that_does_not_get_an_acknowledged_record_soon_is_a_violation(
    acknowledged_s: float, is_late: bool
) -> None:
    known = history()
    event = acknowledged(acknowledged_s - 0.01, 0.01)
    known.on_send(event.send)
    known.on_acknowledged(event)

    assert (polls_are_answered_in_time(known, polled(70.0, 0.5)) is not None) is is_late
    assert polls_are_answered_in_time(known, polled(70.0, 0.5, follower=2)) is None


def test_a_consumer_does_not_wait_for_a_record_that_a_power_loss_may_have_taken() -> None:
    known = history()
    event = acknowledged(69.0, 0.01)
    known.on_send(event.send)
    known.on_acknowledged(event)
    known.exposed[ORDERS] = 5

    assert polls_are_answered_in_time(known, polled(70.0, 0.5)) is None


class Asked:
    def __init__(self, *answers: RestAnswer) -> None:
        self.rest_answers = answers


def test_a_wrong_or_late_answer_of_a_cluster_at_rest_is_a_violation() -> None:
    right = Asked(RestAnswer("Fetch", 0.01, 0.15, ""))
    late = Asked(RestAnswer("Fetch", 0.5, 0.15, ""))
    wrong = Asked(RestAnswer("Fetch", 0.01, 0.15, "1 instead of 2"))

    assert requests_are_answered_correctly(right) is requests_are_answered_in_time(right) is None
    assert requests_are_answered_in_time(late) == "Fetch: answered after 0.500 s; 0.15 s would be enough"
    assert requests_are_answered_correctly(wrong) == "Fetch: 1 instead of 2"
