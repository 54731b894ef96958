"""Scripts from a seed: a cluster lives through steps drawn at random, the same ones before either controller.

What is drawn depends on the tree alone, so two plays part only where the controllers differ. Between two looks of a
controller at most one broker comes or goes: several at once may be one event or two.
"""

from collections.abc import Awaitable, Callable
from random import Random

from tests.differential.script import STORAGE_ERROR, Script
from tests.differential.stage import Stage

from klamm.model.leader_and_isr import LeaderAndIsr

BROKERS = (1, 2, 3, 4)


def random_life(seed: int, step_count: int) -> Script:
    async def run(stage: Stage) -> None:
        life = _Life(stage, Random(seed))
        await life.create()
        for _ in range(step_count):
            await life.step()

    run.__name__ = f"random_life_{seed}"
    return Script(run, BROKERS, False, "3.9", {})


class _Life:
    def __init__(self, stage: Stage, dice: Random) -> None:
        self._stage = stage
        self._dice = dice
        self._live = set(BROKERS)
        self._topics: dict[str, list[list[int]]] = {}
        self._steps: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (2, self.create), (2, self.grow), (6, self.kill), (6, self.start), (3, self.bounce), (8, self.alter_isr),
            (3, self.alter_wrongly), (4, self.shut_down), (3, self.fail_over), (2, self.fail_over_blindly),
            (2, self.write_isr), (1, self.fail_directory), (1, self.lose_an_answer),
        ]  # fmt: skip

    async def step(self) -> None:
        [(_, chosen)] = self._dice.choices(self._steps, [weight for weight, _ in self._steps])
        await chosen()

    # ---- topics

    async def create(self) -> None:
        if len(self._topics) < 4:
            name = "abcd"[len(self._topics)]
            self._topics[name] = [self._replicas() for _ in range(self._dice.randint(1, 4))]
            unclean = self._dice.random() < 0.3
            config = {"unclean.leader.election.enable": "true"} if unclean else {}
            await self._stage.create_topic(name, self._topics[name], config)

    async def grow(self) -> None:
        name = self._dice.choice(list(self._topics))
        if len(self._topics[name]) < 6:
            self._topics[name].append(self._replicas())
            await self._stage.grow_topic(name, self._topics[name])

    def _replicas(self) -> list[int]:
        return self._dice.sample(BROKERS, self._dice.randint(1, 3))

    # ---- brokers

    async def kill(self) -> None:
        if len(self._live) > 1:
            await self._stage.kill(self._one_leaves())

    def _one_leaves(self) -> int:
        broker = self._dice.choice(sorted(self._live))
        self._live.discard(broker)
        return broker

    async def start(self) -> None:
        if dead := sorted(set(BROKERS) - self._live):
            broker = self._dice.choice(dead)
            self._live.add(broker)
            await self._stage.start(broker)

    async def bounce(self) -> None:
        await self._stage.bounce(self._dice.choice(sorted(self._live)))

    async def shut_down(self) -> None:
        await self._stage.controlled_shutdown(self._dice.choice(sorted(self._live)))

    # ---- ISRs

    async def alter_isr(self) -> None:
        """As a leader does: one replica more or less."""
        if (found := await self._led_partition()) is None:
            return
        topic, number, state = found
        others = [b for b in self._topics[topic][number] if b != state.leader]
        if others:
            other = self._dice.choice(others)
            isr = [b for b in state.isr if b != other] if other in state.isr else [*state.isr, other]
            await self._stage.alter_isr(
                topic, state.leader, isr, state.leader_epoch, state.partition_epoch, partition=number
            )

    async def alter_wrongly(self) -> None:
        if (found := await self._led_partition()) is None:
            return
        topic, number, state = found
        epochs = state.leader_epoch + self._dice.randint(-1, 1), state.partition_epoch + self._dice.randint(-1, 1)
        version = self._dice.randint(0, 3)
        await self._stage.alter_isr(
            topic,
            state.leader,
            [state.leader],
            *epochs,
            partition=number,
            version=version,
            recovery=self._dice.choice((0, 0, 0, 1)) if version else 0,
            stale_broker=self._dice.random() < 0.2,
        )

    async def write_isr(self) -> None:
        """As a leader of older times does: the state itself, then the notification."""
        state = await self._stage.state("a", 0)
        if state is not None and state.leader in self._live:
            await self._stage.write_state(
                "a", state.leader, [state.leader], state.leader_epoch, controller_epoch=state.controller_epoch
            )
            if self._dice.random() < 0.5:
                await self._stage.notify_isr("a")

    async def _led_partition(self) -> tuple[str, int, LeaderAndIsr] | None:
        topic = self._dice.choice(list(self._topics))
        number = self._dice.randrange(len(self._topics[topic]))
        state = await self._stage.state(topic, number)
        return (topic, number, state) if state is not None and state.leader in self._live else None

    # ---- the office, answers

    async def fail_over(self) -> None:
        await self._stage.delete_controller()

    async def fail_over_blindly(self) -> None:
        """One broker comes or goes while nobody looks."""
        await self._stage.usurp(9)
        await self._dice.choice((self.kill, self.start, self.bounce, self.create))()
        await self._stage.delete_controller()

    async def fail_directory(self) -> None:
        """From now on this life of the broker has lost its disk."""
        broker = self._dice.choice(sorted(self._live))
        self._stage.brokers[broker].errors["LeaderAndIsr"] = STORAGE_ERROR
        await self._stage.log_dir_event(broker)

    async def lose_an_answer(self) -> None:
        broker = self._dice.choice(sorted(self._live))
        self._stage.brokers[broker].break_once(self._dice.choice(("LeaderAndIsr", "UpdateMetadata")))
