"""A failed log directory is told to the controller, however long ZooKeeper takes."""

import asyncio

from tests.support.memory_zookeeper import MemoryEnsemble

from klamm.broker.log_dir_failures import LogDirFailureNotifier
from klamm.model.ids import BrokerId
from klamm.sim.loop import SimulatedLoop
from klamm.zk.admin_znodes import decode_log_dir_event
from klamm.zk.errors import SessionExpired
from klamm.zk.store import Store

PARENT = "/log_dir_event_notification"


async def ensemble_with_paths() -> MemoryEnsemble:
    ensemble = MemoryEnsemble()
    await Store(ensemble.client()).create_top_level_paths()
    return ensemble


def announced(ensemble: MemoryEnsemble) -> list[BrokerId]:
    """The brokers in the notifications."""
    found = []
    for child in ensemble.nodes[PARENT].children:
        assert child.startswith("log_dir_event_")
        found.append(decode_log_dir_event(child, ensemble.nodes[f"{PARENT}/{child}"].data))
    return found


def test_a_log_dir_failure_notification_waits_for_a_zookeeper_session_and_is_written_once() -> None:
    async def main() -> None:
        ensemble = await ensemble_with_paths()
        stores: list[Store] = []

        def store() -> Store:
            if not stores:
                raise SessionExpired("", "there is no session")
            return stores[0]

        notices = LogDirFailureNotifier(store)
        notices.notify(BrokerId(0))
        await asyncio.sleep(5)
        assert announced(ensemble) == []

        stores.append(Store(ensemble.client()))
        await asyncio.sleep(5)
        assert announced(ensemble) == [0]

    SimulatedLoop().run(main())


def test_simultaneous_log_dir_failures_share_a_notification_and_later_failures_get_their_own() -> None:
    async def main() -> None:
        ensemble = await ensemble_with_paths()
        notices = LogDirFailureNotifier(lambda: Store(ensemble.client()))
        notices.notify(BrokerId(4))
        notices.notify(BrokerId(4))
        await asyncio.sleep(1)
        assert 1 <= len(announced(ensemble)) <= 2
        before = len(announced(ensemble))

        notices.notify(BrokerId(4))
        await asyncio.sleep(1)
        assert len(announced(ensemble)) == before + 1

    SimulatedLoop().run(main())


def test_a_log_dir_failure_after_the_nodes_shutdown_writes_no_notification() -> None:
    async def main() -> None:
        ensemble = await ensemble_with_paths()
        notices = LogDirFailureNotifier(lambda: Store(ensemble.client()))
        notices.notify(BrokerId(4))
        await notices.close()
        notices.notify(BrokerId(4))
        await asyncio.sleep(5)
        assert announced(ensemble) == []

    SimulatedLoop().run(main())
