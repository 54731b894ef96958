"""Plays one script against a cluster, and writes down what it answers, step by step.

A step ends when every request is answered, or when those that wait (JoinGroup, SyncGroup) stay unanswered for a while:
`quiet_s`. The lines name the request that an answer belongs to, so that its place tells when it was answered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from tests.differential.coordinators.contents import Contents
from tests.differential.coordinators.leadership import Leadership
from tests.differential.coordinators.names import DATA, OWN, PARTITIONS, Names, Place
from tests.differential.coordinators.requests import VERBS, Actor, Requests, Sent
from tests.differential.coordinators.script import DYNAMIC, OPERATOR, PRODUCERS, STATIC, Script, Step

from klamm.client.connection import Connection
from klamm.client.errors import ConnectionLost
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.runtime.world import real_world

ANSWER_TIMEOUT_S: Final = 60.0
MARKERS_TIMEOUT_S: Final = 20.0
_PAUSE_S: Final = 0.1
"""Kafka makes the offsets of a transaction visible in another thread, after the marker is written."""
_REPLICATION_S: Final = 0.4
"""Kafka's tombstones are replicated with the next fetch of the follower, within replica.fetch.wait.max.ms."""
WAITING: Final = frozenset(("join", "sync"))
"""Verbs whose answer may have to wait for other members."""
REBALANCING: Final = WAITING | {"enter", "leave", "wait", "move", "restart", "drop", "delete_groups"}
LISTS: Final = frozenset(("list_groups", "list_transactions"))
ENDING: Final = frozenset(("end", "init", "wait", "move", "restart", "mark", "delete_topic"))
"""After these markers may be on their way."""


class Address(NamedTuple):
    host: str
    port: int


class Ground(Protocol):
    """The cluster of two brokers on which scripts are played."""

    def leader(self, partition: TopicPartition) -> Address: ...

    def other(self, partition: TopicPartition) -> Address:
        """The broker that does not lead it."""
        ...

    async def move_home(self, partition: TopicPartition) -> None:
        """Make the broker the leader that was at first."""
        ...

    async def create_topic(self, name: str) -> None:
        """Create a topic with one partition, and wait until both brokers know it."""
        ...

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until neither broker knows it."""
        ...

    async def move(self, partition: TopicPartition) -> None:
        """Make the other broker the leader, and wait until it has loaded the partition."""
        ...


class Waiting(NamedTuple):
    """A request without an answer yet."""

    step: int
    who: Actor
    verb: str
    sent: Sent
    answer: "asyncio.Future[Any]"
    options: dict[str, Any]

    @property
    def may_wait(self) -> bool:
        """Whether the answer may depend on other members: not that of a leader with its assignment."""
        return self.verb in WAITING and not (self.verb == "sync" and self.who.listed)


class View(NamedTuple):
    """A group as the coordinator describes it."""

    text: str
    prefixes: tuple[str, ...]
    """Client or instance id of each member."""


class Player:
    def __init__(
        self, ground: Ground, script: Script, place: Place, quiet_s: float, restart: Callable[[], Awaitable[None]]
    ) -> None:
        """`restart` returns once the brokers have been restarted, for all scripts that play at this time."""
        self._ground = ground
        self._restart = restart
        self._script = script
        self._place = place
        self._quiet_s = quiet_s
        self._names = Names(place)
        self._actors = _actors()
        self._requests = Requests(place, self._actors)
        self._connections: dict[tuple[str, Address], Connection] = {}
        self._waiting: list[Waiting] = []
        self._contents = Contents(place, self._names)
        self.lines: list[str] = []
        self._step = 0
        self._leadership = Leadership()
        self._view = View("", ())

    async def play(self) -> list[str]:
        """Take every step, and end with what the coordinators tell and what their topics contain."""
        try:
            for partition in self._coordinator_partitions():
                await self._ground.move_home(partition)
            starts = {partition: await self._end_offset(partition) for partition in self._coordinator_partitions()}
            for number, step in enumerate(self._script.steps):
                before = len(self.lines)
                await self._take(step)
                if self._leadership.is_open(self._view.prefixes):
                    if any(left.verb == "restart" for left in self._script.steps[number + 1 :]):
                        await self._restart()  # the others wait for it
                    self.lines[before:] = [f"{self._step}: {step}", "    any member may lead now: the script ends"]
                    return self.lines
            await self._finish()
            await self._read_contents(starts)
            return self.lines
        finally:
            for connection in self._connections.values():
                connection.close()

    def _coordinator_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, self._place.slot) for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)]

    async def _end_offset(self, partition: TopicPartition) -> int:
        return await self._contents.end(await self._connection("reader", self._ground.leader(partition)), partition)

    async def _read_contents(self, starts: dict[TopicPartition, int]) -> None:
        """Write down what the script has added to the coordinators' topics and to its partitions of `data`."""
        await asyncio.sleep(_REPLICATION_S)
        data = {TopicPartition(DATA, self._place.first_partition + n): 0 for n in range(PARTITIONS)}
        for partition, start in (starts | data).items():
            connection = await self._connection("reader", self._ground.leader(partition))
            self.lines.append(f"contents of {self._names.partition(*partition)}")
            self.lines += [f"    {line}" async for line in self._contents.lines(connection, partition, start)]

    # ---- steps

    async def _take(self, step: Step) -> None:
        self._step += 1
        self.lines.append(f"{self._step}: {step}")
        who = self._actors[step.who]
        if step.verb == "wait":
            await asyncio.sleep(float(step.options["seconds"]))
            await self._settle(None, can_trigger=True)
        elif step.verb == "move":
            await asyncio.sleep(_REPLICATION_S)
            await self._ground.move(TopicPartition(step.options["topic"], self._place.slot))
            await self._settle(None, can_trigger=True)
        elif step.verb == "create_topic":
            await self._ground.create_topic(self._place.real[OWN])
        elif step.verb == "delete_topic":
            await self._ground.delete_topic(self._place.real[OWN])
            await asyncio.sleep(_REPLICATION_S)  # its offsets are removed in another thread
        elif step.verb == "restart":
            await asyncio.sleep(_REPLICATION_S)
            await self._restart()
            await self._settle(None, can_trigger=True)
        elif step.verb == "drop":
            self._drop(who)
        elif any(w.who is who for w in self._waiting):
            self.lines.append("    left out: its last request waits")
        else:
            await self._ask(step, who)
        if step.verb in ENDING:
            await self._wait_for_markers()
        if step.verb in REBALANCING:
            await self._look()

    async def _ask(self, step: Step, who: Actor) -> None:
        verb = "join" if step.verb == "enter" else step.verb
        assert verb in VERBS, step.verb
        send = self._send_list if verb in LISTS else self._send
        waiting = await send(who, verb, dict(step.options))
        await self._settle(waiting, can_trigger=step.verb in REBALANCING)
        if step.verb == "enter" and waiting.answer.done() and _error(waiting) == ErrorCode.MEMBER_ID_REQUIRED:
            again = await self._send(who, verb, dict(step.options))
            await self._settle(again, can_trigger=True)

    async def _send(self, who: Actor, verb: str, options: dict[str, Any]) -> Waiting:
        sent = self._requests.build(who, verb, options)
        partition = TopicPartition(sent.topic, sent.partition if sent.topic == DATA else self._place.slot)
        address = (self._ground.other if options.get("at") == "other" else self._ground.leader)(partition)
        answer = await self._send_to(who.name, address, sent)
        waiting = Waiting(self._step, who, verb, sent, answer, options)
        self._waiting.append(waiting)
        return waiting

    async def _send_list(self, who: Actor, verb: str, options: dict[str, Any]) -> Waiting:
        """Ask for all groups or transactions of a broker, again while it loads those of other scripts."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while True:
                waiting = await self._send(who, verb, options)
                if (await waiting.answer).error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    return waiting
                self._waiting.remove(waiting)

    async def _send_to(self, name: str, address: Address, sent: Sent) -> "asyncio.Future[Any]":
        connection = await self._connection(name, address)
        answer = connection.send(sent.key, sent.version, sent.message, 2 * ANSWER_TIMEOUT_S)
        answer.add_done_callback(lambda future: future.cancelled() or future.exception())
        return answer

    async def _connection(self, name: str, address: Address) -> Connection:
        found = self._connections.get((name, address))
        if found is None or found.closed:
            found = await Connection.open(real_world(), *address, name, ANSWER_TIMEOUT_S)
            self._connections[name, address] = found
        return found

    def _drop(self, who: Actor) -> None:
        """Close the actor's connections, with the requests that wait on them."""
        for (name, _), connection in self._connections.items():
            if name == who.name:
                connection.close()
        self._waiting = [w for w in self._waiting if w.who is not who]

    # ---- answers

    async def _settle(self, own: Waiting | None, *, can_trigger: bool) -> None:
        """Wait for the answer, and for those of others that it may cause."""
        if own is not None:
            timeout_s = self._quiet_s if own.may_wait else ANSWER_TIMEOUT_S
            await asyncio.wait({own.answer}, timeout=timeout_s)
        if can_trigger and (own is None or own.answer.done()):
            while open_answers := {w.answer for w in self._waiting if not w.answer.done()}:
                done, _ = await asyncio.wait(open_answers, timeout=self._quiet_s, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
        for waiting in [w for w in self._waiting if w.answer.done()]:
            self._waiting.remove(waiting)
            self.lines.append(f"    {waiting.step}> {self._apply(waiting)}")
        if own is not None and own in self._waiting:
            self.lines.append("    waits" if own.may_wait else "    no answer")

    def _apply(self, waiting: Waiting) -> str:
        """Let the actor take what it was answered; the answer as a line."""
        if isinstance(error := waiting.answer.exception(), ConnectionLost):
            return "closed"
        if error is not None:
            raise error
        message, who = waiting.answer.result(), waiting.who
        if waiting.verb == "join" and message.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            who.member_id = message.member_id
            if not message.error_code:
                who.generation, who.protocol_name = message.generation_id, message.protocol_name
                who.protocol_type = waiting.sent.message.protocol_type  # type: ignore[attr-defined]
                who.listed = tuple(sorted((m.member_id for m in message.members), key=self._names.member))
                members = [_prefix(self._names.member(member)) for member in who.listed]
                self._leadership.on_join_response(_prefix(self._names.member(message.leader)), members)
        elif waiting.verb == "init" and not message.error_code:
            who.producer_id, who.epoch, who.sequences = message.producer_id, message.producer_epoch, {}
        elif waiting.verb == "produce" and not message.responses[0].partition_responses[0].error_code:
            is_plain = not {"as", "epoch", "sequence", "producer"} & waiting.options.keys()
            number = waiting.options["partition"]
            who.sequences[number] = who.sequences.get(number, 0) + is_plain * waiting.options.get("count", 1)
        self._leave_out_others(waiting.verb, message)
        return self._names.describe(message)

    def _leave_out_others(self, verb: str, message: Any) -> None:
        """Remove from a list what belongs to other scripts."""
        if verb == "list_groups":
            message.groups = [g for g in message.groups if g.group_id in self._place.known]
        elif verb == "list_transactions":
            states = message.transaction_states
            message.transaction_states = [t for t in states if t.transactional_id in self._place.known]

    # ---- what is waited for, and looked at

    async def _wait_for_markers(self) -> None:
        """Wait until no transaction of the script is between its end and its markers."""
        operator = self._actors[OPERATOR]
        was_prepared = False
        async with asyncio.timeout(MARKERS_TIMEOUT_S):
            while True:
                sent = self._requests.build(operator, "describe_transactions", {"ids": ["x", "y"]})
                address = self._ground.leader(TopicPartition(TRANSACTIONS_TOPIC, self._place.slot))
                found = (await (await self._send_to("reader", address, sent))).transaction_states
                if not any(t.transaction_state.startswith("Prepare") for t in found):
                    break
                was_prepared = True
                await asyncio.sleep(0.02)
        if was_prepared or any(t.transaction_state.startswith("Complete") for t in found):
            await asyncio.sleep(_PAUSE_S)

    async def _look(self) -> None:
        """Describe the group: its state and its members."""
        sent = self._requests.build(self._actors[OPERATOR], "describe", {"v": 5})
        address = self._ground.leader(TopicPartition(OFFSETS_TOPIC, self._place.slot))
        found = (await (await self._send_to("reader", address, sent))).groups[0]
        ids = sorted(self._names.member(member.member_id) for member in found.members)
        self._view = View(f"{found.group_state} {' '.join(ids)}".strip(), tuple(map(_prefix, ids)))
        self.lines.append(f"    = {self._view.text}")

    async def _finish(self) -> None:
        """End with what the coordinators tell about the script."""
        for actor in self._actors.values():
            if any(w.who is actor for w in self._waiting):
                self._drop(actor)
        for step in _FINAL:
            await self._take(step)


_FINAL: Final[Sequence[Step]] = (
    Step(OPERATOR, "describe", {"v": 5, "groups": ["g", "h"]}),
    Step(OPERATOR, "fetch", {"v": 9, "groups": ["g", "h"]}),
    Step(OPERATOR, "describe_transactions", {"ids": ["x", "y"]}),
    Step(OPERATOR, "list_transactions", {"v": 0}),
    *(Step(OPERATOR, "describe_producers", {"partition": n}) for n in range(PARTITIONS)),
    *(
        Step(OPERATOR, "list_offsets", {"v": 7, "partition": n, "committed": committed})
        for n in range(PARTITIONS)
        for committed in (0, 1)
    ),
)


def _actors() -> dict[str, Actor]:
    return {
        **{name: Actor(name) for name in DYNAMIC},
        **{name: Actor(name, instance_id) for name, instance_id in STATIC.items()},
        **{name: Actor(name, transactional_id=transaction) for name, transaction in PRODUCERS.items()},
        OPERATOR: Actor(OPERATOR),
    }


def _prefix(name: str) -> str:
    return name.rpartition("#")[0]


def _error(waiting: Waiting) -> int:
    if waiting.answer.exception() is not None:
        return ErrorCode.NONE
    return int(waiting.answer.result().error_code)
