"""A plan with the names of its rows: as tables, as JSON, and as files for kafka-reassign-partitions."""

from collections.abc import Sequence
from posixpath import join
from typing import Any, NamedTuple

import msgspec
import numpy as np

from klamm.cli.admin.brokers import format_bytes
from klamm.cli.output import print_error, print_json, print_line, print_table
from klamm.model.cluster import listed
from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan.arrays import NO_REPLICA, Ints, PlanInput
from klamm.plan.cluster_load import ClusterLoad
from klamm.plan.draft import Plan
from klamm.plan.goal import Goal, to_arrays
from klamm.plan.json_files import Replicas, reassignment_as_data
from klamm.plan.planner import Extent, make_plan, reasons, with_dead_replicas
from klamm.plan.waves import WaveLimits, plan_waves
from klamm.runtime.disk import RealDisk

MAX_PRINTED = 50
_COLUMNS = ("broker", "rack", "replicas", "", "size", "", "leaders", "", "produced/s", "")


class NamedPlan(NamedTuple):
    """A plan with the names of its rows."""

    given: PlanInput
    plan: Plan
    order: Sequence[TopicPartition]
    changed: Ints
    waves: Sequence[Sequence[int]]

    def assignment(self, replicas: Ints, partitions: Sequence[int]) -> dict[TopicPartition, Replicas]:
        """The assignment of these partitions, with names and ids."""
        ids = self.given.ids.tolist()
        return {
            self.order[at]: tuple(BrokerId(ids[b]) for b in replicas[at].tolist() if b != NO_REPLICA)
            for at in partitions
        }

    def reasons(self) -> dict[TopicPartition, list[str]]:
        """Why each partition changes."""
        found: dict[TopicPartition, list[str]] = {self.order[at]: [] for at in self.changed.tolist()}
        for at, reason in reasons(self.plan, self.given):
            found.setdefault(self.order[at], []).append(reason)
        return found


def plan_cluster(
    load: ClusterLoad,
    goal: Goal,
    extent: Extent,
    tolerance: float,
    limits: WaveLimits,
) -> NamedPlan:
    """Plan, and cut the plan into waves. Raises UsageError."""
    given, order = to_arrays(load, goal)
    made = make_plan(given, extent, tolerance)
    changed = made.changed(given.replicas)
    waves = plan_waves(changed, given.replicas, made.replicas, given.sizes.tolist(), limits)
    return NamedPlan(given, made, order, changed, waves)


def plan_as_data(named: NamedPlan) -> dict[str, Any]:
    """A reassignment that kafka-reassign-partitions reads; each partition also has its wave, and what was before."""
    changed = named.changed.tolist()
    before = named.assignment(named.given.replicas, changed)
    wave_of = {named.order[at]: number for number, wave in enumerate(named.waves, 1) for at in wave}
    why = named.reasons()
    document = reassignment_as_data(named.assignment(named.plan.replicas, changed))
    for entry in document["partitions"]:
        at = TopicPartition(entry["topic"], entry["partition"])
        entry |= {"current_replicas": before[at], "wave": wave_of[at], "reasons": why[at]}
    return document


def write_plan(named: NamedPlan, directory: str) -> None:
    """Write the waves, what undoes each of them, and the reasons. Raises UsageError where files are in the way."""
    disk = RealDisk()
    disk.make_directories(directory)
    if there := disk.list_directory(directory):
        raise UsageError(f"--out {directory} is not empty: it has {sorted(there)[0]}. Name a new directory.")
    for number, wave in enumerate(named.waves, 1):
        for kind, replicas in (("wave", named.plan.replicas), ("rollback", named.given.replicas)):
            document = msgspec.json.encode(reassignment_as_data(named.assignment(replicas, wave)))
            disk.write_atomically(join(directory, f"{kind}-{number:03}.json"), document)
    lines = [f"{at}\t{'; '.join(of)}\n" for at, of in sorted(named.reasons().items())]
    disk.write_atomically(join(directory, "reasons.tsv"), "".join(lines).encode())


def print_plan(named: NamedPlan, load: ClusterLoad, out: str | None, throttle: int | None) -> None:
    """Print the brokers before and after, the moves with their reasons, and the commands that execute them."""
    print_table(_COLUMNS, _broker_rows(named, load), title="each broker, before and after")
    why = named.reasons()
    shown = [at for wave in named.waves for at in wave][:MAX_PRINTED]
    before, after = (named.assignment(of, shown) for of in (named.given.replicas, named.plan.replicas))
    rows = [(at, listed(before[at]), listed(after[at]), "; ".join(why[at])) for at in before]
    if rows:
        print_table(("partition", "replicas", "new replicas", "reasons"), rows)
    moved = (named.plan.replicas[named.changed], named.given.replicas[named.changed])
    new = [len(set(a) - set(b) - {NO_REPLICA}) for a, b in zip(*(of.tolist() for of in moved), strict=True)]
    size = format_bytes(int(named.given.sizes[named.changed] @ np.array(new, float)))
    print_error(
        f"{len(named.changed):,} of {len(named.order):,} partitions change, {sum(new):,} replicas ({size}) are copied "
        f"in {len(named.waves):,} waves" + ("" if out or not rows else "; --out DIRECTORY writes them")
    )
    if waiting := int((with_dead_replicas(named.given, named.plan.replicas) & named.given.movable).sum()):
        print_error(
            f"{waiting:,} partitions have a replica on a broker that is not alive: they change only where it is "
            "required, because their reassignment ends when the broker is back. Start it, or pass --remove-broker."
        )
    if out is not None and named.waves:
        limit = f" --throttle {throttle}" if throttle else ""
        print_line("Execute one wave after the other, with this command or with kafka-reassign-partitions --execute:")
        print_line(f"  klamm reassign apply --reassignment-json-file {join(out, 'wave-001.json')}{limit} --wait")
        print_line("Undo a wave with its rollback file. At the end elect the new leaders:")
        print_line("  klamm elect --election-type preferred --all-topic-partitions")


def output_plan(named: NamedPlan, load: ClusterLoad, *, as_json: bool, out: str | None, throttle: int | None) -> None:
    """Write the plan to the directory `out`, if there is one, and print it."""
    if out is not None:
        write_plan(named, out)
    if as_json:
        print_json(plan_as_data(named))
    else:
        print_plan(named, load, out, throttle)


def _broker_rows(named: NamedPlan, load: ClusterLoad) -> list[Sequence[object]]:
    """Replicas, bytes, preferred leaders and rates of each broker, before and after."""
    given = named.given
    ones = np.ones(len(given.replicas))
    columns = []
    for weights, leaders in ((ones, False), (given.sizes, False), (ones, True), (given.rates, True)):
        for replicas in (given.replicas, named.plan.replicas):
            of = replicas[:, :1] if leaders else replicas
            sums = np.bincount(of.ravel() + 1, np.repeat(weights, of.shape[1]), len(given.ids) + 1)[1:]
            columns.append(sums.tolist())
    rows: list[Sequence[object]] = []
    for number, broker in enumerate(given.ids.tolist()):
        values = [column[number] for column in columns]
        texts = [f"{v:.0f}" if index in (0, 1, 4, 5) else format_bytes(int(v)) for index, v in enumerate(values)]
        rows.append((broker, load.racks.get(BrokerId(broker), "not alive"), *texts))
    return rows
