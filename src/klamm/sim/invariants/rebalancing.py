"""Leadership returns to preferred replicas: how often controllers look for imbalance, and what they elect then.

Source: KafkaController.checkAndTriggerAutoLeaderRebalance (3.9).
"""

from collections import Counter, defaultdict
from typing import Final

from klamm.controller.events import AutoPreferredReplicaLeaderElection
from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.history.history import History
from klamm.sim.history.trace import EventEnded, ImbalanceUnchecked

_FIRST_CHECK_S: Final = 5
"""After failover."""
_LATE_S: Final = 5.0
"""Other events may be handled before."""


def imbalance_is_checked_in_time(history: History, event: ImbalanceUnchecked) -> str | None:
    """Controllers check leader imbalance 5 s after failover, then every `leader.imbalance.check.interval.seconds`."""
    settings = event.term.settings
    due_s = _FIRST_CHECK_S if event.is_first else settings.leader_imbalance_check_s
    if not settings.auto_leader_rebalance or event.undisturbed_s <= due_s + _LATE_S:
        return None
    return (
        f"{event.term} has not looked for imbalanced leaders for {event.undisturbed_s:.0f} s; it is due after {due_s} s"
    )


def rebalancing_elects_preferred_replicas(history: History, event: EventEnded) -> str | None:
    """After an imbalance check no broker above the limit has a partition that it could have been elected to lead.

    This is not checked where leaders write ISRs: as in Kafka the check goes by the ISRs that the controller knows, and
    it learns of those later.
    """
    term, controllers = event.term, history.controllers
    if not isinstance(event.event, AutoPreferredReplicaLeaderElection) or term is None:
        return None
    if event.has_failed or event.is_cut_short or history.at.leaders_write_isrs:
        return None
    if term.epoch != controllers.epoch or not controllers.has_controller_znode:
        return None
    began_at = controllers.began_at.get((event.broker, event.incarnation), 0)
    preferred, elsewhere = _imbalance(history)
    for broker, partitions in elsewhere.items():
        ratio = len(partitions) / preferred[broker]
        if ratio <= term.settings.leader_imbalance_percentage / 100:
            continue
        for p in partitions:
            if can_be_preferred_leader(history, event, p, began_at):
                return f"{p}: broker {broker} is not elected, although it lacks {ratio:.0%} of what it should lead"
    return None


def _imbalance(history: History) -> tuple[Counter[BrokerId], dict[BrokerId, list[TopicPartition]]]:
    """For each broker: how many partitions prefer it as leader, and those of them that another broker leads."""
    preferred: Counter[BrokerId] = Counter()
    elsewhere: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
    for name, topic in history.topics.znodes.items():
        for number, assignment in topic.partitions.items():
            p = TopicPartition(name, number)
            first = next(iter(assignment.replicas), None)
            if first is None:
                continue
            preferred[first] += 1
            newest = history.states.newest(p)
            if newest is not None and newest.leader != first and name not in history.topics.deletion_requests:
                elsewhere[first].append(p)
    return preferred, elsewhere


def can_be_preferred_leader(history: History, event: EventEnded, p: TopicPartition, since: int) -> bool:
    """Whether the first replica was certainly live and in sync, and not the leader, from this zxid on until now."""
    first, newest = history.topics.replicas(p)[0], history.states.newest(p)
    if newest is None or first not in newest.isr or history.states.written_at[p][-1] > since:
        return False
    return p not in history.states.in_doubt and history.broker_views.is_online(event.term, p, first) is True
