"""What a standby's mirror costs ZooKeeper while partition states are written, how far it lags, and whether it is exact.

    python -m benchmarks.standby                                # 1,000 states a second: nobody, a bare watch, a mirror
    python -m benchmarks.standby --modes mirror --seconds 600   # the long run: lag and exactness

One real ZooKeeper and one writer, which writes the states of partitions chosen at random in multis, as a controller
does after AlterPartition requests. Then, in turn, nobody watches; a bare client has the persistent recursive watch of
the mirror and ignores the notices, which is the least that any follower costs; a mirror follows. The figure that counts
is the processor time of the ZooKeeper process; it hardly depends on what else the machine does.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.control_plane.tree import PER_TOPIC, spread, topics, write_cluster
from klamm.controller.mirror import Mirror
from klamm.controller.settings import ControllerSettings
from klamm.embedded.zookeeper import ServerOptions, ZooKeeperServer
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.runtime.ports import free_port
from klamm.runtime.time_slices import TimeSlices
from klamm.runtime.world import real_world
from klamm.sim.invariants.contexts import describe
from klamm.zk import znodes
from klamm.zk.client import ZooKeeper
from klamm.zk.operations import Set
from klamm.zk.store import Store

NOBODY, WATCH, MIRROR = "nobody watches", "a bare watch", "a mirror"
MODES: Final = {"nobody": NOBODY, "watch": WATCH, "mirror": MIRROR}
SESSION_MS: Final = 30_000
LOOK_S: Final = 0.05
WARM_UP_S: Final = 10.0
"""Writes before the first figure: the Java machine compiles what is called often."""


@dataclass(slots=True)
class Measured:
    """One mode: processor time of ZooKeeper for each state written, and what the mirror did."""

    mode: str
    states: int
    zookeeper_cpu_us: float
    """Microseconds for each state."""
    own_cpu_us: float
    """Microseconds of this process for each state; the writer's are included."""
    reads: int = 0
    usual_lag_s: float = 0.0
    """The lag that 99 of 100 looks at it do not exceed."""
    longest_lag_s: float = 0.0
    most_changed: int = 0
    losses: int = 0
    is_exact: bool | None = None


class Writer:
    """Writes states of partitions chosen at random, a fixed number of them a second."""

    def __init__(self, client: ZooKeeper, count: int, per_second: int, batch: int) -> None:
        self._client = client
        self._partitions = [TopicPartition(t, n) for t, numbers in topics(count, spread) for n in numbers]
        self._rng = random.Random(17)
        self._per_second = per_second
        self._batch = batch
        self._epoch = 1

    async def write(self, seconds: float) -> int:
        """Write for so long; returns the number of states that were written."""
        began, written = time.monotonic(), 0
        while written < seconds * self._per_second:
            due = began + written / self._per_second
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self._epoch += 1
            chosen = self._rng.sample(self._partitions, self._batch)
            state = LeaderAndIsr(BrokerId(1), self._epoch, (BrokerId(1), BrokerId(2), BrokerId(3)), 1)
            data = znodes.encode_state(state)
            await self._client.multi([Set(znodes.state_path(p), data) for p in chosen])
            written += self._batch
        return written


async def session(hosts: str) -> ZooKeeper:
    """A new session."""
    client = ZooKeeper(real_world(), hosts, SESSION_MS)
    await client.connect(SESSION_MS / 1000)
    return client


@asynccontextmanager
async def bare_watch(hosts: str) -> AsyncIterator[None]:
    """A client with the watch of a mirror that reads nothing."""
    client = await session(hosts)
    await client.watch_subtree(znodes.TOPICS)
    yield
    await client.close()


class Followed:
    """A mirror that follows, and the lags that were seen."""

    def __init__(self, hosts: str) -> None:
        self._hosts = hosts
        self.lags_s: list[float] = []
        self.most_changed = 0

    async def start(self) -> None:
        """Read everything, and begin to follow."""
        self._session = await session(self._hosts)
        self.mirror = Mirror(self._session, TimeSlices(), ControllerSettings(BrokerId(0)))
        await self.mirror.load()
        self._reads_before = self.mirror.reads
        self._tasks = [asyncio.create_task(self.mirror.follow()), asyncio.create_task(self._watch_lag())]

    @property
    def reads(self) -> int:
        """Znodes read again."""
        return self.mirror.reads - self._reads_before

    async def _watch_lag(self) -> None:
        """Note the lag again and again."""
        while True:
            self.lags_s.append(self.mirror.lag_s)
            self.most_changed = max(self.most_changed, self.mirror.changed_count)
            await asyncio.sleep(LOOK_S)

    async def is_exact(self) -> bool:
        """Whether the mirror equals one that is read now; ends it."""
        while self.mirror.lag_s:  # noqa: ASYNC110 - the mirror tells nobody that it has caught up
            await asyncio.sleep(LOOK_S)
        await self.mirror.finish(0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        other = await session(self._hosts)
        fresh = Mirror(other, TimeSlices(), ControllerSettings(BrokerId(0)))
        await fresh.load()
        is_equal = describe(self.mirror.context) == describe(fresh.context) and self.mirror.mzxids == fresh.mzxids
        is_read = not await self.mirror.unread_partitions()
        for opened in (self._session, other):
            await opened.close()
        return is_equal and is_read


async def measure(mode: str, hosts: str, zookeeper: psutil.Process, writer: Writer, seconds: float) -> Measured:
    """Write for so long in this mode, and measure."""
    followed = Followed(hosts) if mode == MIRROR else None
    if followed is not None:
        await followed.start()
    if mode == WATCH:
        async with bare_watch(hosts):
            return await _write_and_measure(mode, zookeeper, writer, seconds)
    measured = await _write_and_measure(mode, zookeeper, writer, seconds)
    if followed is not None:
        lags_s = sorted(followed.lags_s)
        measured.reads, measured.longest_lag_s = followed.reads, lags_s[-1]
        measured.usual_lag_s = lags_s[len(lags_s) * 99 // 100]
        measured.most_changed, measured.losses = followed.most_changed, int(followed.mirror.lost.is_set())
        measured.is_exact = not measured.losses and await followed.is_exact()
    return measured


async def _write_and_measure(mode: str, zookeeper: psutil.Process, writer: Writer, seconds: float) -> Measured:
    """The processor time of ZooKeeper, and of this process, while states are written."""
    before, own = _cpu_s(zookeeper), time.process_time()
    states = await writer.write(seconds)
    used, own_used = _cpu_s(zookeeper) - before, time.process_time() - own
    return Measured(mode, states, used / states * 1e6, own_used / states * 1e6)


def _cpu_s(process: psutil.Process) -> float:
    """Processor seconds of the process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def run(args: argparse.Namespace, console: Console) -> list[Measured]:
    """Measure all modes in turn, as many times as wanted."""
    found: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
        options = ServerOptions(heap_mb=512 + args.partitions // 100, sync_to_disk=False)
        server = ZooKeeperServer(f"{directory}/zookeeper", free_port(), options)
        server.start()
        try:
            hosts = server.connect_string
            assert server.child is not None
            zookeeper = psutil.Process(server.child.pid)
            client = await session(hosts)
            await Store(client).create_top_level_paths()
            await write_cluster(client, args.partitions, spread)
            writer = Writer(client, args.partitions, args.changes_per_second, args.batch)
            await writer.write(WARM_UP_S)
            for _ in range(args.rounds):
                for mode in args.modes:
                    measured = await measure(MODES[mode], hosts, zookeeper, writer, args.seconds)
                    console.print(json.dumps(asdict(measured)), highlight=False, soft_wrap=True)
                    found.append(measured)
            await client.close()
        finally:
            server.kill()
    return found


def table(found: list[Measured]) -> Table:
    """The mean of each mode, and its distance from the writes alone."""
    shown = Table("while states are written", title="ZooKeeper's processor time for each state")
    for heading in ("microseconds", "more than alone", "lag p99 s", "longest", "read again", "exact"):
        shown.add_column(heading, justify="right")
    alone = _mean(found, NOBODY)
    for mode in dict.fromkeys(m.mode for m in found):
        mean, of_mode = _mean(found, mode), [m for m in found if m.mode == mode]
        more = f"{100 * (mean / alone - 1):+.0f} %" if alone and mean else ""
        usual = f"{max(m.usual_lag_s for m in of_mode):.2f}" if mode == MIRROR else ""
        longest = f"{max(m.longest_lag_s for m in of_mode):.2f}" if mode == MIRROR else ""
        reads = f"{sum(m.reads for m in of_mode):,} of {sum(m.states for m in of_mode):,}" if mode == MIRROR else ""
        exact = ("yes" if all(m.is_exact for m in of_mode) else "NO") if mode == MIRROR else ""
        shown.add_row(mode, f"{mean:.1f}", more, usual, longest, reads, exact)
    return shown


def _mean(found: list[Measured], mode: str) -> float:
    """The mean processor time of ZooKeeper for a state in this mode; 0 if it was not measured."""
    figures = [m.zookeeper_cpu_us for m in found if m.mode == mode]
    return sum(figures) / len(figures) if figures else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=20 * PER_TOPIC)
    parser.add_argument("--changes-per-second", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=50, help="states in one write")
    parser.add_argument("--seconds", type=float, default=20, help="for each mode and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    parser.add_argument("--json", help="also write the figures to this file")
    args = parser.parse_args()
    console = Console(width=120)
    found = asyncio.run(run(args, console))
    console.print(table(found))
    if args.json:
        Path(args.json).write_text(json.dumps([asdict(m) for m in found], indent=1))
    if any(m.is_exact is False or m.longest_lag_s >= 1 for m in found):
        raise SystemExit("The mirror was not exact, or lagged by a second or more.")


if __name__ == "__main__":
    main()
