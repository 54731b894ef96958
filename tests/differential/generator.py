"""A machine that makes scripts as it goes: hypothesis draws the next verb, the controllers carry it out at once.

It stops at the first difference that nobody wants; `shorten` then makes the script as short as it can with a difference
still there. What the two do differently on purpose, or by chance, it does not ask for; each condition says why.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.differential.lives import BROKERS, Call
from tests.differential.nodes import StartNode
from tests.differential.plays import Difference, Steps, differences
from tests.differential.script import STORAGE_ERROR
from tests.differential.stage import Stage
from tests.differential.verbs.admin import PREFERRED, UNCLEAN
from tests.differential.wanted import unwanted

from klamm.cli.zookeeper import ZooKeeperServer
from klamm.model.assignment import ReplicaAssignment
from klamm.zk.znodes import decode_topic

TOPICS = "abcd"
UNCLEAN_ALLOWED = "unclean.leader.election.enable"
brokers = st.sampled_from(BROKERS)
replicas = st.lists(brokers, min_size=1, max_size=3, unique=True)
assignments = st.lists(replicas, min_size=1, max_size=3)
off_by_one = st.integers(-1, 1)
flags = st.booleans()


class Ground:
    """Where lives take place: one ZooKeeper, one loop that runs while a verb is carried out, the controllers."""

    def __init__(
        self, runner: asyncio.Runner, server: ZooKeeperServer, directory: Path, start: Sequence[StartNode]
    ) -> None:
        self.runner = runner
        self._server = server
        self._directory = directory
        self._start = start
        self.count = 0

    async def open(self) -> list[Stage]:
        """One stage for each controller, brokers registered, controller in office."""
        self.count += 1
        stages = []
        for i, start in enumerate(self._start):
            directory = self._directory / f"life-{self.count}-{i}"
            directory.mkdir()
            stages.append(Stage(self._server, f"/life-{self.count}-{i}", directory, start, "3.9", {}))

        async def begin(stage: Stage) -> None:
            await stage.open(BROKERS)
            await stage.start_controller()

        await asyncio.gather(*map(begin, stages))
        return stages

    def differs(self, calls: Sequence[Call], kinds: set[str]) -> bool:
        """In a way like these, played from the beginning."""
        return self.runner.run(self._differs(calls, kinds))

    async def _differs(self, calls: Sequence[Call], kinds: set[str]) -> bool:
        stages = await self.open()
        try:
            for call in calls:
                try:
                    await asyncio.gather(*(call.on(stage) for stage in stages))
                except Exception:
                    return False  # it makes no sense any more
            return not kinds.isdisjoint(map(kind_of, newest_differences(stages)))
        finally:
            await asyncio.gather(*(stage.close() for stage in stages))


def newest_differences(stages: Sequence[Stage]) -> list[Difference]:
    first, *others = ([step.as_data() for step in stage.steps] for stage in stages)
    return [d for steps in others for d in unwanted("a life", differences(first, steps))]


def kind_of(difference: Difference) -> str:
    """What was asked for, in its first words, and where it differs."""
    return f"{' '.join(difference.did.split()[:3])}: {re.sub('[0-9]+', 'N', difference.place)}"


class Life(RuleBasedStateMachine):
    ground: ClassVar[Ground]
    on_end: ClassVar[Callable[["Life"], None]]
    """Told of every life that came to its end."""

    @initialize(assignment=assignments)
    def begin(self, assignment: list[list[int]]) -> None:
        self.calls: list[Call] = []
        self.found: list[Difference] = []
        self.live = set(BROKERS)
        self.broken: int | None = None
        self.stages = self.ground.runner.run(self.ground.open())
        self.do("create_topic", "a", assignment)

    @property
    def steps(self) -> Steps:
        return [step.as_data() for step in self.stages[0].steps]

    def do(self, verb: str, *args: Any, **options: Any) -> None:
        """All carry it out; after a difference nothing more is done."""
        if self.found:
            return
        call = Call(verb, args, options)
        self.calls.append(call)

        async def each() -> None:
            await asyncio.gather(*(call.on(stage) for stage in self.stages))

        self.ground.runner.run(each())
        self.found = newest_differences(self.stages)

    def teardown(self) -> None:
        async def close() -> None:
            await asyncio.gather(*(stage.close() for stage in self.stages))

        if hasattr(self, "stages"):
            self.ground.runner.run(close())
            self.on_end()

    @rule(data=st.data())
    def live_on(self, data: st.DataObject) -> None:
        """One verb, some more often than others."""
        data.draw(st.sampled_from(WEIGHTED))(self, data.draw)

    # ---- what there is, as the first one's ZooKeeper has it

    def _assignment(self, topic: str) -> dict[int, ReplicaAssignment]:
        async def read() -> dict[int, ReplicaAssignment]:
            [node] = await self.stages[0].client.get_many([f"/brokers/topics/{topic}"])
            return dict(decode_topic(topic, node.data).partitions) if node.stat is not None else {}

        return self.ground.runner.run(read())

    def _isr(self, topic: str, number: int) -> tuple[int, ...] | None:
        state = self.ground.runner.run(self.stages[0].state(topic, number))
        return None if state is None else state.isr

    def _partition(self, draw: Any) -> tuple[str, int, ReplicaAssignment, tuple[int, ...]] | None:
        """One that had a leader once, of no topic that is deleted: there Kafka moves the epochs, ours does not."""
        there = [t for t in TOPICS if self._assignment(t) and not self._is_queued(t)]
        if not there:
            return None
        topic = draw(st.sampled_from(there))
        assignment = self._assignment(topic)
        number = draw(st.sampled_from(sorted(assignment)))
        isr = self._isr(topic, number)
        now = assignment[number]
        if isr is None or (now.is_being_reassigned and self.live.isdisjoint({*now.target} - {self.broken})):
            return None  # at the end of a move that nobody can lead ours stops
        return topic, number, now, isr

    def _is_queued(self, topic: str) -> bool:
        return f"/admin/delete_topics/{topic}" in self.stages[0]._tree

    def _something_is_queued(self) -> bool:
        """Ours goes on at a failover with a deletion that has dead replicas, Kafka waits for them."""
        return any(map(self._is_queued, TOPICS))

    def _is_moving(self, topic: str) -> bool:
        return any(each.is_being_reassigned for each in self._assignment(topic).values())

    def _one_alive(self, draw: Any) -> int:
        broker: int = draw(st.sampled_from(sorted(self.live)))
        return broker

    # ---- brokers

    def kill(self, draw: Any) -> None:
        if len(self.live) > 1:
            broker = self._one_alive(draw)
            self._renew(broker)
            self.live.discard(broker)
            self.do("kill", broker)

    def start(self, draw: Any) -> None:
        if dead := sorted(set(BROKERS) - self.live):
            broker = draw(st.sampled_from(dead))
            self.live.add(broker)
            self.do("start", broker)

    def bounce(self, draw: Any) -> None:
        self.do("bounce", self._one_alive(draw))

    def shut_down(self, draw: Any) -> None:
        self.do("controlled_shutdown", self._one_alive(draw))

    def break_a_disk(self, draw: Any) -> None:
        """Of one broker at a time: whose answer comes first is chance."""
        if self.broken is None:
            self.broken = self._one_alive(draw)
            self.do("fail", self.broken, "LeaderAndIsr", STORAGE_ERROR)
            self.do("log_dir_event", self.broken)

    def _renew(self, broker: int) -> None:
        if self.broken == broker:
            self.broken = None

    def lose_an_answer(self, draw: Any) -> None:
        self.do("lose_answer", self._one_alive(draw), draw(st.sampled_from(["LeaderAndIsr", "UpdateMetadata"])))

    def allocate_ids(self, draw: Any) -> None:
        self.do("allocate_producer_ids", self._one_alive(draw))

    # ---- topics

    def create(self, draw: Any) -> None:
        topic, assignment, is_unclean = draw(st.sampled_from(TOPICS)), draw(assignments), draw(flags)
        if self._assignment(topic) or self._is_queued(topic):
            return
        config = {UNCLEAN_ALLOWED: "true"} if is_unclean else {}
        if draw(flags):
            uniform = [each[: min(map(len, assignment))] for each in assignment]
            self.do("create_topics", {topic: uniform}, config, timeout_ms=0)
        else:
            self.do("create_topic", topic, assignment, config)

    def grow(self, draw: Any) -> None:
        topic, more = draw(st.sampled_from(TOPICS)), draw(replicas)
        now = self._assignment(topic)
        if now and len(now) < 5 and not self._is_moving(topic) and not self._is_queued(topic):
            self.do("grow_topic", topic, [*(list(now[i].replicas) for i in sorted(now)), more])

    def delete(self, draw: Any) -> None:
        """Not one that moves: ours waits, Kafka deletes it in the midst of it."""
        topic = draw(st.sampled_from(TOPICS))
        if self._assignment(topic) and not self._is_queued(topic) and not self._is_moving(topic):
            if draw(flags):
                self.do("delete_topics", topic, timeout_ms=0)
            else:
                self.do("delete_topic", topic)

    def configure(self, draw: Any) -> None:
        topic = draw(st.sampled_from(TOPICS))
        if self._assignment(topic):
            self.do("set_config", topic, {UNCLEAN_ALLOWED: str(draw(flags)).lower()})
            self.do("notify_config", topic)

    # ---- ISRs

    def alter_isr(self, draw: Any) -> None:
        """One replica more or less."""
        if (found := self._partition(draw)) is not None:
            topic, number, now, isr = found
            other = draw(st.sampled_from(now.replicas))
            changed = [b for b in isr if b != other] if other in isr else [*isr, other]
            if changed:
                self.do("leader_asks", topic, changed, number)

    def join_all(self, draw: Any) -> None:
        if (found := self._partition(draw)) is not None:
            topic, number, now, isr = found
            joined = [*isr, *(b for b in now.replicas if b in self.live and b not in isr)]
            self.do("leader_asks", topic, joined, number)

    def alter_wrongly(self, draw: Any) -> None:
        if (found := self._partition(draw)) is not None:
            topic, number, _, isr = found
            version = draw(st.integers(0, 3))
            self.do(
                "leader_asks", topic, list(isr[:1]), number,
                leader_epochs_off=draw(off_by_one), partition_epochs_off=draw(off_by_one), version=version,
                recovery=draw(st.integers(0, 1)) if version else 0, stale_broker=draw(flags),
            )  # fmt: skip

    # ---- moves and elections

    def reassign(self, draw: Any) -> None:
        """Not what would drop replicas in sync, nor what nobody could lead: there ours does better.

        By the znode only to brokers that live.
        """
        wanted, by_api = draw(replicas), draw(flags)
        found = self._partition(draw)
        if found is None or set(found[2].adding) & set(found[3]):
            return
        if self.live.isdisjoint(found[3]) or self.live.isdisjoint({*wanted} - {self.broken}):
            return
        if by_api:
            self.do("reassign", {found[:2]: wanted})
        elif set(wanted) <= self.live and "/admin/reassign_partitions" not in self.stages[0]._tree:
            self.do("request_reassignment", {found[:2]: wanted})

    def cancel(self, draw: Any) -> None:
        found = self._partition(draw)
        if found is not None and not set(found[2].adding) & set(found[3]):
            self.do("reassign", {found[:2]: None})

    def list_moves(self, draw: Any) -> None:
        self.do("list_reassignments", None)

    def elect(self, draw: Any) -> None:
        if (found := self._partition(draw)) is not None:
            self.do("elect", draw(st.sampled_from([PREFERRED, UNCLEAN])), [found[:2]], timeout_ms=1000)

    def prefer(self, draw: Any) -> None:
        if (found := self._partition(draw)) is not None:
            self.do("request_preferred", found[:2])

    # ---- the office

    def fail_over(self, draw: Any) -> None:
        if not self._something_is_queued():
            self.do("delete_controller")

    def fail_over_blindly(self, draw: Any) -> None:
        """One broker bounces or returns while nobody looks."""
        if not self._something_is_queued():
            broker = draw(brokers)
            self.do("usurp", 9)
            self.do("bounce" if broker in self.live else "start", broker)
            self.live.add(broker)
            self.do("delete_controller")


WEIGHTED: list[Callable[[Life, Any], None]] = [
    *[Life.kill] * 4, *[Life.start] * 5, *[Life.bounce] * 2, *[Life.shut_down] * 2, Life.break_a_disk,
    Life.lose_an_answer, Life.allocate_ids, *[Life.create] * 3, *[Life.grow] * 2, *[Life.delete] * 2,
    *[Life.configure] * 2, *[Life.alter_isr] * 4, *[Life.join_all] * 6, *[Life.alter_wrongly] * 2,
    *[Life.reassign] * 4, Life.cancel, Life.list_moves, *[Life.elect] * 2, Life.prefer, Life.fail_over,
    Life.fail_over_blindly,
]  # fmt: skip


def live(ground: Ground, count: int, first: int, steps: int, on_end: Callable[[Life], None]) -> None:
    """So many lives, the same ones for the same number `first`."""

    class Machine(Life):
        pass

    Machine.ground = ground
    Machine.on_end = on_end
    run_state_machine_as_test(
        seed(first)(Machine),
        settings=settings(
            max_examples=count,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )


def shorten(calls: Sequence[Call], still_differs: Callable[[Sequence[Call]], bool]) -> list[Call]:
    """Without any call that can be spared: halves at first, single ones in the end."""
    left = list(calls)
    size = len(left) // 2
    while size:
        for cut in _cuts(left, size):
            if still_differs(cut):
                left = cut
                break
        else:
            size //= 2
    return left


def _cuts(calls: list[Call], size: int) -> Iterator[list[Call]]:
    for at in range(len(calls) - size, -1, -size):
        yield calls[:at] + calls[at + size :]
