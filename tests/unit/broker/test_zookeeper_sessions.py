"""One session after another: who depends on it is told, and can wait for the next."""

import asyncio
from typing import Any

import pytest

from klamm.broker.crash_guard import CrashGuard
from klamm.broker.zookeeper_sessions import ZooKeeperSessions
from klamm.config.node_config import NodeConfig, parse_node_config
from klamm.runtime.crash_guard import GuardedSession
from klamm.runtime.world import World, real_world
from klamm.sim.loop import SimulatedLoop
from klamm.zk.errors import ConnectionLoss
from klamm.zk.states import SessionState
from klamm.zk.store import Store
from klamm.zk.watches import WatchEvent

PROPERTIES = b"broker.id=1\nzookeeper.connect=127.0.0.1:1\nlog.dirs=/nowhere\n"


class Session:
    server = "127.0.0.1:1"

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id

    is_close_confirmed = True

    async def close(self) -> None:
        return


class RecordingGuard(CrashGuard):
    """A crash guard that keeps the ids of the sessions it was told to forget."""

    def __init__(self, world: World, config: NodeConfig) -> None:
        super().__init__(world, config)
        self.forgotten: list[int] = []

    def forget(self, session_id: int) -> None:
        self.forgotten.append(session_id)
        super().forget(session_id)


class Ensemble(ZooKeeperSessions):
    """Gives sessions without any server; `refusals` connections fail first."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.refusals = 0
        self.given: list[Session] = []
        config = parse_node_config(PROPERTIES, "server.properties")
        self.recording_guard = RecordingGuard(real_world(), config)
        super().__init__(real_world(), config, self.recording_guard)
        self.add_listener(self)

    async def session_expired(self) -> None:
        self.told.append("expired")

    def session_established(self, store: Store) -> None:
        self.told.append(f"renewed {store.client.session_id}")

    def on_watch(self, event: WatchEvent) -> None:
        self.told.append(event.path)

    async def _connect(self, timeout_s: float) -> Any:
        await asyncio.sleep(0)
        if self.refusals:
            self.refusals -= 1
            raise ConnectionLoss("", "nobody there")
        self.given.append(Session(len(self.given) + 1))
        return self.given[-1]

    def expire(self) -> None:
        self._on_state(self.given[-1], SessionState.EXPIRED)  # type: ignore[arg-type]


def test_callers_wait_for_the_next_zookeeper_session_after_an_expiration() -> None:
    async def main() -> None:
        sessions = Ensemble()
        await sessions.start()
        first = sessions.store
        assert (await sessions.wait_for_session()).client is first.client

        sessions.refusals = 3
        sessions.expire()
        store = await sessions.wait_for_session()
        assert store.client.session_id == 2
        assert sessions.told == ["expired", "renewed 2"]
        await sessions.close()

    SimulatedLoop().run(main())


def test_a_zookeeper_session_that_expires_after_close_is_not_renewed() -> None:
    async def main() -> None:
        sessions = Ensemble()
        await sessions.start()
        await sessions.close()
        sessions.expire()
        await asyncio.sleep(5)
        assert (len(sessions.given), sessions.told) == (1, [])

    SimulatedLoop().run(main())


@pytest.mark.parametrize(("is_confirmed", "forgotten"), [(True, [1]), (False, [])])
def test_the_crash_guard_keeps_a_session_whose_close_zookeeper_did_not_confirm(
    is_confirmed: bool, forgotten: list[int]
) -> None:
    async def main() -> None:
        sessions = Ensemble()
        await sessions.start()
        sessions.guard.watch(GuardedSession(1, b"secret", 6000, [("zk-1", 2181)]))
        sessions.given[0].is_close_confirmed = is_confirmed
        await sessions.close()

        assert sessions.recording_guard.forgotten == forgotten

    SimulatedLoop().run(main())
