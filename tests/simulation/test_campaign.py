"""`make sim`: seeds over all cores, progress lines, exit codes."""

import gc
import itertools
import re
import weakref
from collections.abc import Generator, Iterator

import pytest

from klamm.runtime.cores import over_cores
from klamm.sim import campaign
from klamm.sim.__main__ import main
from klamm.sim.campaign import CLUSTER, SCHEDULES_PER_COLLECTION, Report, Tally
from klamm.sim.cluster import Outcome
from klamm.sim.cluster_tier.options import Options
from klamm.sim.scripts.script import Script


def double(number: int) -> int:
    return 2 * number


def test_the_worker_pool_draws_seeds_on_demand_and_stops_when_the_caller_stops_iterating() -> None:
    dealt = []

    def endless() -> Iterator[int]:
        for number in itertools.count():
            dealt.append(number)
            yield number

    results = over_cores(double, endless(), cores=2)
    taken = set(itertools.islice(results, 10))
    assert isinstance(results, Generator)
    results.close()
    assert len(taken) == 10
    assert taken <= {double(number) for number in dealt}
    assert len(dealt) < 20


def test_a_simulation_campaign_prints_its_schedules_seeds_and_number_of_violations(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--first", "1", "--schedules", "4", "--cores", "2"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"done after \d+ s, seeds 1 to 4: \d schedules, 0 broken, .* per core-second", told)
    assert "every invariant held" in told


def test_a_simulation_campaign_exits_with_code_1_at_the_first_violation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_and_report(seed: int) -> Report:
        violation = "rule: wrong" if seed == 3 else None
        return Report(seed, violation, "", 120.0, 10, 10, 1, campaign.MIN_EFFECTS, {}, 0.1)

    monkeypatch.setattr(campaign, "run_and_report", run_and_report)
    chosen = campaign.Campaign(1, seconds=60, most=1_000, violations=1, cores=1)

    assert chosen.run() == 1
    assert chosen.first_broken == 3
    assert chosen.tally.done == 3
    assert "make seed N=3" in capsys.readouterr().out


def test_a_simulated_schedule_without_record_writes_is_counted_as_idle() -> None:
    tally = Tally()
    tally.add(Report(1, None, "", 120.0, 10, 10, 1, 0, {}, 0.1))
    tally.add(Report(2, "rule: wrong", "", 120.0, 10, 10, 1, 0, {}, 0.1))

    assert (tally.done, tally.idle, len(tally.broken)) == (1, 1, 1)


def test_a_simulation_campaign_frees_the_clusters_of_earlier_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    class Simulated:
        def __init__(self) -> None:
            self.itself = self  # only the garbage collector frees it

    clusters = weakref.WeakSet[Simulated]()

    def run_schedule(seed: int) -> Outcome:
        clusters.add(Simulated())
        return Outcome(Script(Options.plain(seed), [], 0.0), None, "", 1, 1, 1, 1, 1.0, {}, [], [], b"")

    monkeypatch.setitem(campaign.TIERS, CLUSTER.name, CLUSTER._replace(run_schedule=run_schedule))
    gc.disable()  # automatic collections are too rare for objects as large as these
    try:
        left = []
        for seed in range(3 * SCHEDULES_PER_COLLECTION):
            campaign.run_and_report(seed, CLUSTER.name)
            left.append(len(clusters))
    finally:
        gc.enable()

    assert max(left) <= SCHEDULES_PER_COLLECTION
