"""How often brokers failed and how long partitions were not whole: what a plan knows of a cluster's past."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from klamm.model.ids import BrokerId, TopicPartition

LEAST_LEADING: Final = 0.5
"""A broker leads at least so much of what the most reliable one leads, whatever its history."""


class BrokerHistory(NamedTuple):
    failures: int = 0
    """How often it lost its leaders, except by controlled shutdowns."""
    out_of_isr: float = 0.0
    """The share of time in which its replicas were not in the ISR."""


class PartitionHistory(NamedTuple):
    behind: float = 0.0
    """How much longer its replicas were out of the ISR than the others on their brokers, as a share of time."""
    without_leader: float = 0.0
    """The share of time in which it had no leader."""


class History(NamedTuple):
    brokers: Mapping[BrokerId, BrokerHistory]
    """Those not in it did not fail."""
    partitions: Mapping[TopicPartition, PartitionHistory]
    """Those not in it always had a leader, and an ISR as complete as their brokers allowed."""


NO_HISTORY: Final = History({}, {})


def leading_shares(history: History, brokers: Sequence[BrokerId]) -> list[float]:
    """How much each broker shall lead in comparison with the others: 1 for the most reliable one.

    Leaders are lost equally often everywhere if a broker leads in inverse proportion to its failures. A broker also
    leads only as long as it is in the ISR. No broker leads less than `LEAST_LEADING` of the most reliable one.
    """
    found = [history.brokers.get(b, BrokerHistory()) for b in brokers]
    shares = [(1 - of.out_of_isr) / (1 + of.failures) for of in found]
    most = max(shares, default=1.0)
    return [max(share / most, LEAST_LEADING) if most > 0 else 1.0 for share in shares]


def reliability_text(of: BrokerHistory) -> str:
    """A broker's history in words: `failed 3 times, out of ISRs 0.2 % of the time`; empty where nothing happened."""
    failed = f"failed {of.failures} time{'s' * (of.failures > 1)}" if of.failures else ""
    away = f"out of ISRs {100 * of.out_of_isr:.2g} % of the time" if of.out_of_isr else ""
    return ", ".join(text for text in (failed, away) if text)
