"""What a cluster's past changes in a plan: shares of leaders, and the load of partitions."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.plan.clusters import cluster, planned

from klamm.model.ids import BrokerId
from klamm.plan.arrays import leader_weights, replica_weights
from klamm.plan.history import NO_HISTORY, BrokerHistory, History, leading_shares, reliability_text


def shares(*brokers: BrokerHistory) -> list[float]:
    history = History({BrokerId(number): of for number, of in enumerate(brokers)}, {})
    return leading_shares(history, [BrokerId(number) for number in range(len(brokers))])


def test_brokers_lead_in_inverse_proportion_to_their_failures_but_at_least_half() -> None:
    assert shares(BrokerHistory(1), BrokerHistory(2)) == pytest.approx([1, 2 / 3])
    assert shares(BrokerHistory(), BrokerHistory(1), BrokerHistory(9)) == [1, 0.5, 0.5]


def test_brokers_lead_as_long_as_they_are_in_the_isr() -> None:
    assert shares(BrokerHistory(out_of_isr=0.1), BrokerHistory(out_of_isr=0.28)) == pytest.approx([1, 0.8])
    assert shares(BrokerHistory(out_of_isr=1.0), BrokerHistory(out_of_isr=1.0)) == [1, 1]


def test_without_a_history_all_brokers_get_equal_shares_of_leaders() -> None:
    assert leading_shares(NO_HISTORY, [BrokerId(1), BrokerId(2)]) == [1, 1]
    assert leading_shares(NO_HISTORY, []) == []


def test_a_history_in_words_names_only_what_happened() -> None:
    assert reliability_text(BrokerHistory(1)) == "failed 1 time"
    assert reliability_text(BrokerHistory(0, 0.0021)) == "out of ISRs 0.21 % of the time"
    assert reliability_text(BrokerHistory()) == ""


def test_partitions_that_were_behind_or_without_leader_weigh_more_by_that_share_of_time() -> None:
    behind, without = np.array([0.0, 0.5, 0.0]), np.array([0.0, 0.0, 0.25])
    given = replace(cluster([(0,)] * 3, [0]), behind=behind, without_leader=without)

    assert replica_weights(given) * 3.5 == pytest.approx([1, 1.5, 1])
    assert leader_weights(given) * 3.75 == pytest.approx([1, 1.5, 1.25])


def test_partitions_that_were_behind_are_spread_over_brokers() -> None:
    """Four of eight were behind all the time: one of them moves, and the loads are 6 and 6 in place of 8 and 4."""
    behind = np.array([1.0] * 4 + [0.0] * 4)
    after = planned(cluster([(0,)] * 4 + [(1,)] * 4, [0, 0]), behind=behind, tolerance=0.0)

    assert [float((1 + behind[after[:, 0] == broker]).sum()) for broker in (0, 1)] == [6, 6]
