"""The tables of journals against the truth: what ZooKeeper saw in simulated clusters, and what `klamm explain` says."""

from collections import defaultdict
from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame
from tests.support.simulated_journals import SimulatedJournal, State, unexplained

from klamm.insight.elections import elections
from klamm.insight.facts import causes, event_lines, refusal_lines, state_steps
from klamm.insight.timeline import timeline
from klamm.model.ids import TopicPartition
from klamm.telemetry.journal_reader import leader_changes, parse_lines

ORDER = ("topic", "partition", "controller_epoch", "seq")


@pytest.fixture(scope="module")
def states_told(simulated_lines: DataFrame) -> dict[TopicPartition, list[State]]:
    told = defaultdict(list)
    for row in timeline(state_steps(simulated_lines)).orderBy(*ORDER).collect():
        told[TopicPartition(row.topic, row.partition)].append((row.leader, row.leader_epoch, tuple(row.isr)))
    return told


def test_a_timeline_has_every_state_that_zookeeper_had(
    journals: Sequence[SimulatedJournal], states_told: dict[TopicPartition, list[State]]
) -> None:
    assert sum(map(len, states_told.values())) > 40 * len(journals)
    assert not states_told.keys() - {p for journal in journals for p in journal.states}
    problems = [
        problem
        for journal in journals
        for problem in unexplained(journal, {p: s for p, s in states_told.items() if p in journal.states})
    ]
    assert not problems


def test_elections_are_those_that_klamm_explain_tells(
    journals: Sequence[SimulatedJournal], simulated_lines: DataFrame
) -> None:
    told = elections(
        state_steps(simulated_lines), refusal_lines(simulated_lines), causes(event_lines(simulated_lines))
    ).where("leader_before is not null")
    rows = [
        (row.topic, row.partition, row.leader_before, row.leader, row.leader_epoch, row.unclean, row.why or "")
        for row in told.collect()
    ]
    explained = [
        (*change.partition, change.leader_from, change.leader_to, change.leader_epoch, change.unclean, change.why)
        for journal in journals
        for change in leader_changes(parse_lines("\n".join(journal.lines).encode()))
    ]
    assert len(explained) > 10 * len(journals)
    assert sorted(rows) == sorted(explained)
