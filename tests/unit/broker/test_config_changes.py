"""Every broker follows what others change, however often it was away."""

import asyncio
from collections.abc import Mapping
from itertools import pairwise

import pytest
from structlog.testing import capture_logs
from tests.support.memory_zookeeper import MemoryEnsemble, MemoryZooKeeper

from klamm.broker.config_changes import KEPT_MS, ConfigChanges
from klamm.broker.znode_follower import ZnodeFollower
from klamm.model.ids import BrokerId
from klamm.sim.loop import SimulatedLoop
from klamm.zk.admin_znodes import decode_config_change
from klamm.zk.configs import ABSENT, ConfigStore, NoZooKeeperController
from klamm.zk.errors import SessionExpired
from klamm.zk.operations import Create, Delete, Set
from klamm.zk.store import Store
from klamm.zk.znodes import encode_controller

CHANGES = "/config/changes"


class Heard:
    """A follower that writes down what it is told."""

    def __init__(self) -> None:
        self.topics: list[dict[str, dict[str, str]]] = []
        self.brokers: list[tuple[Mapping[str, str], Mapping[str, str]]] = []
        self.hosted_topics: list[str] = []

    async def topics_changed(self, overrides: Mapping[str, Mapping[str, str]]) -> None:
        self.topics.append({topic: dict(own) for topic, own in overrides.items()})

    async def brokers_changed(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        self.brokers.append((cluster, broker))


class Room:
    """One broker that follows, and the ensemble in which others write."""

    def __init__(self, first: int | None = None) -> None:
        self.ensemble = MemoryEnsemble()
        self.heard = Heard()
        self.now_ms = 0
        self.session: MemoryZooKeeper | None = None
        self.changes = ConfigChanges(self._store, 1, self.heard, lambda: self.now_ms, first=first)

    def _store(self) -> Store:
        if self.session is None:
            raise SessionExpired("", "there is no session")
        return Store(self.session)

    def connect(self) -> None:
        self.session = self.ensemble.client()
        self.session.on_watch = self.changes.on_watch

    async def begin(self) -> "Room":
        self.connect()
        await self._store().create_top_level_paths()
        self.ensemble.apply([Create("/controller", encode_controller(BrokerId(1), 0))])
        self.others = ConfigStore(self.ensemble.client())
        return self

    async def alter(self, kind: str, entity: str, config: Mapping[str, str]) -> None:
        """Write configs of an entity, with a notification."""
        stored = await self.others.read(kind, entity)
        await self.others.write(kind, entity, config, stored.version)

    @property
    def notices(self) -> list[str]:
        """The entities named by the notifications in ZooKeeper."""
        children = self.ensemble.nodes[CHANGES].children
        return [decode_config_change(c, self.ensemble.nodes[f"{CHANGES}/{c}"].data) for c in sorted(children)]


def test_each_config_change_writes_one_notification_and_is_applied_once() -> None:
    async def main() -> None:
        room = await Room().begin()
        room.changes.start()
        await asyncio.sleep(1)
        await room.alter("topics", "orders", {"retention.ms": "1"})
        await asyncio.sleep(1)
        await room.alter("topics", "orders", {"retention.ms": "2"})
        await asyncio.sleep(1)

        assert room.notices == ["topics/orders", "topics/orders"]
        assert room.heard.topics == [{"orders": {"retention.ms": "1"}}, {"orders": {"retention.ms": "2"}}]
        assert room.heard.brokers == []
        await room.changes.close()

    SimulatedLoop().run(main())


def test_several_config_change_notifications_for_one_entity_cause_one_read() -> None:
    async def main() -> None:
        room = await Room().begin()
        for value in ("1", "2", "3"):
            await room.alter("topics", "orders", {"retention.ms": value})
        await room.alter("brokers", "<default>", {"message.max.bytes": "5"})
        await room.alter("brokers", "2", {"num.io.threads": "5"})
        await room.alter("brokers", "1", {"num.io.threads": "6"})
        room.changes.start()
        await asyncio.sleep(1)

        assert room.heard.topics == [{"orders": {"retention.ms": "3"}}]
        assert room.heard.brokers == [({"message.max.bytes": "5"}, {"num.io.threads": "6"})]
        await room.changes.close()

    SimulatedLoop().run(main())


def test_a_broker_does_not_apply_the_configs_of_another_broker() -> None:
    async def main() -> None:
        room = await Room().begin()
        await room.alter("brokers", "2", {"num.io.threads": "5"})
        await room.changes.catch_up()

        assert room.heard.brokers == []

    SimulatedLoop().run(main())


def test_config_changes_made_between_two_zookeeper_sessions_are_applied() -> None:
    async def main() -> None:
        room = await Room().begin()
        room.changes.start()
        await asyncio.sleep(1)
        assert room.session is not None
        room.ensemble.expire(room.session)
        room.session = None
        await room.alter("topics", "orders", {"retention.ms": "1"})
        await asyncio.sleep(10)
        assert room.heard.topics == []

        room.connect()
        room.changes.wake()
        await asyncio.sleep(2)

        assert room.heard.topics == [{"orders": {"retention.ms": "1"}}]
        await room.changes.close()

    SimulatedLoop().run(main())


def test_malformed_config_change_notifications_are_skipped() -> None:
    async def main() -> None:
        room = await Room().begin()
        for name, payload in (("config_change_", b"{"), ("config_change_", None), ("config_change_", b"[1]")):
            room.ensemble.apply([Create(f"{CHANGES}/{name}", payload, sequential=True)])
        room.ensemble.apply([Create(f"{CHANGES}/strange", b"x")])
        await room.alter("topics", "orders", {})
        with capture_logs() as logs:
            await room.changes.catch_up()
            await room.changes.catch_up()

        assert room.heard.topics == [{"orders": {}}]
        ignored = [
            line["notification"]
            for line in logs
            if line["event"] == "config change notification ignored: it cannot be read"
        ]
        assert len(ignored) == 4, "each is logged once"

    SimulatedLoop().run(main())


def test_old_config_change_notifications_are_deleted() -> None:
    async def main() -> None:
        room = await Room().begin()
        await room.alter("topics", "orders", {})
        room.now_ms = KEPT_MS
        await room.changes.catch_up()
        assert room.notices

        room.now_ms = KEPT_MS + 1
        await room.changes.catch_up()

        assert room.notices == []
        assert len(room.heard.topics) == 1

    SimulatedLoop().run(main())


def test_a_config_change_notification_that_cannot_be_deleted_does_not_block_later_notifications() -> None:
    async def main() -> None:
        room = await Room().begin()
        room.ensemble.apply([Create(f"{CHANGES}/a", b"x"), Create(f"{CHANGES}/a/b", b"")])
        await room.alter("topics", "orders", {})
        room.now_ms = KEPT_MS + 1
        await room.changes.catch_up()

        assert list(room.ensemble.nodes[CHANGES].children) == ["a"]

    SimulatedLoop().run(main())


def test_altering_a_config_without_an_active_controller_writes_no_notification() -> None:
    async def main() -> None:
        room = await Room().begin()
        room.ensemble.apply([Delete("/controller")])
        with pytest.raises(NoZooKeeperController):
            await room.alter("topics", "orders", {"retention.ms": "1"})

        assert room.notices == []

    SimulatedLoop().run(main())


def test_altering_a_config_after_a_controller_change_writes_nothing() -> None:
    async def main() -> None:
        room = await Room().begin()

        def move(_ops: object) -> None:
            room.ensemble.before_multi = lambda ops: None
            room.ensemble.apply([Set("/controller", encode_controller(BrokerId(2), 1))])

        room.ensemble.before_multi = move
        with pytest.raises(NoZooKeeperController, match="because the controller changed meanwhile"):
            await room.alter("topics", "orders", {"retention.ms": "1"})

        assert (await room.others.read("topics", "orders")).version == ABSENT
        assert room.notices == []

    SimulatedLoop().run(main())


def test_an_unexpected_error_while_applying_a_config_change_does_not_stop_later_changes() -> None:
    async def main() -> None:
        room = await Room().begin()
        mistakes: list[str] = []
        room.changes = ConfigChanges(
            room._store, 1, room.heard, lambda: room.now_ms, lambda what, error: mistakes.append(f"{what}: {error!r}")
        )
        room.connect()
        applied = room.heard.topics_changed

        async def mistaken(overrides: Mapping[str, Mapping[str, str]]) -> None:
            raise ZeroDivisionError

        room.heard.topics_changed = mistaken  # type: ignore[method-assign]
        room.changes.start()
        await room.alter("topics", "orders", {"retention.ms": "1"})
        await asyncio.sleep(1)
        room.heard.topics_changed = applied  # type: ignore[method-assign]
        await room.alter("topics", "payments", {"retention.ms": "2"})
        await asyncio.sleep(1)

        assert mistakes == ["applying configs of 1 topics: ZeroDivisionError()"]
        assert room.heard.topics == [{"payments": {"retention.ms": "2"}}]
        await room.changes.close()

    SimulatedLoop().run(main())


def test_an_unexpected_error_while_reading_config_changes_is_retried_with_growing_backoff() -> None:
    async def main() -> None:
        tries: list[float] = []
        loop = asyncio.get_running_loop()

        async def read() -> None:
            tries.append(loop.time())
            if len(tries) < 4:
                raise ZeroDivisionError

        following = ZnodeFollower("something", "/something", read, lambda what, error: None)
        following.start()
        await asyncio.sleep(30)
        assert [round(b - a) for a, b in pairwise(tries)] == [1, 2, 4]
        following.wake()
        await asyncio.sleep(1)
        assert len(tries) == 5
        await following.close()

    SimulatedLoop().run(main())


@pytest.mark.parametrize("is_recreated", [False, True])
def test_a_broker_reads_all_configs_if_change_notifications_were_deleted_before_it_read_them(
    is_recreated: bool,
) -> None:
    """Its session was away for longer than notifications are kept, or the clock of another broker is ahead."""

    async def main() -> None:
        room = await Room().begin()
        await room.alter("topics", "orders", {"retention.ms": "1"})
        await room.changes.catch_up()
        room.heard.hosted_topics = ["orders", "clicks"]
        await room.alter("topics", "orders", {"retention.ms": "2"})
        await room.alter("brokers", "<default>", {"message.max.bytes": "5"})
        await room.alter("topics", "others", {"retention.ms": "3"})
        await room.others.delete_changes(sorted(room.ensemble.nodes[CHANGES].children)[:-1])
        if is_recreated:
            await room.others.delete_changes(sorted(room.ensemble.nodes[CHANGES].children))
            room.ensemble.apply([Delete(CHANGES), Create(CHANGES)])
        await room.changes.catch_up()
        await room.changes.catch_up()

        wanted = {"orders": {"retention.ms": "2"}, "clicks": {}}
        if not is_recreated:
            wanted["others"] = {"retention.ms": "3"}
        assert room.heard.topics == [{"orders": {"retention.ms": "1"}}, wanted]
        assert room.heard.brokers == [({"message.max.bytes": "5"}, {})]

        await room.alter("topics", "orders", {"retention.ms": "4"})
        await room.changes.catch_up()
        assert room.heard.topics[2:] == [{"orders": {"retention.ms": "4"}}]

    SimulatedLoop().run(main())


def test_a_broker_reads_all_configs_if_changes_during_its_start_were_deleted_before_it_read_them() -> None:
    """Loading its logs took longer than notifications are kept."""

    async def main() -> None:
        room = await Room(first=1).begin()
        room.heard.hosted_topics = ["orders"]
        await room.alter("topics", "orders", {"retention.ms": "1"})  # in the configs that were read at the start
        await room.alter("topics", "orders", {"retention.ms": "2"})
        await room.others.delete_changes(sorted(room.ensemble.nodes[CHANGES].children))

        await room.changes.catch_up()

        assert room.heard.topics == [{"orders": {"retention.ms": "2"}}]
        assert len(room.heard.brokers) == 1

    SimulatedLoop().run(main())


def test_a_broker_reads_no_configs_again_if_no_change_during_its_start_was_deleted() -> None:
    async def main() -> None:
        room = await Room(first=1).begin()
        room.heard.hosted_topics = ["orders"]
        await room.alter("topics", "orders", {"retention.ms": "1"})
        await room.alter("topics", "clicks", {"retention.ms": "2"})
        await room.others.delete_changes(sorted(room.ensemble.nodes[CHANGES].children)[:1])

        await room.changes.catch_up()

        assert room.heard.topics == [{"clicks": {"retention.ms": "2"}}]
        assert await room.others.next_change_number() == 2

    SimulatedLoop().run(main())


def test_deleted_change_notifications_count_as_missed_until_the_configs_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ZooKeeper fails between the look at the notifications and the read of the configs."""

    async def main() -> None:
        room = await Room(first=0).begin()
        room.heard.hosted_topics = ["orders"]
        await room.alter("topics", "orders", {"retention.ms": "1"})
        await room.others.delete_changes(sorted(room.ensemble.nodes[CHANGES].children))
        monkeypatch.setattr(room.heard, "topics_changed", session_expired)
        with pytest.raises(SessionExpired):
            await room.changes.catch_up()
        monkeypatch.undo()

        await room.changes.catch_up()

        assert room.heard.topics == [{"orders": {"retention.ms": "1"}}]

    SimulatedLoop().run(main())


async def session_expired(overrides: Mapping[str, Mapping[str, str]]) -> None:
    raise SessionExpired("", "the session ended")
