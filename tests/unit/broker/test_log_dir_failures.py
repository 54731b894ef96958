"""A failed log directory is told to the controller, however long ZooKeeper takes."""

import asyncio
from types import SimpleNamespace
from typing import Any

from structlog.testing import capture_logs
from tests.support.memory_zookeeper import MemoryEnsemble

from klamm.broker.log_dir_failures import LogDirFailureNotifier, LogDirFailures
from klamm.log.registry import DirectoryFailure
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


def test_a_full_disk_is_reported_with_the_directory_and_how_to_go_on() -> None:
    failure = DirectoryFailure("/small", "[Errno 28] No space left on device", ())
    stopped: list[str] = []
    context: Any = SimpleNamespace(
        broker_id=BrokerId(4), store=None, status=SimpleNamespace(report_failure=stopped.append)
    )
    logs: Any = SimpleNamespace(live_directories=[])
    with capture_logs() as lines:
        LogDirFailures(context).on_failure(failure, logs)

    remedy = "Repair the disk, or free space if it is full, and restart the node."
    (line,) = lines
    assert (line["directory"], line["reason"], line["action"]) == ("/small", failure.reason, remedy)
    assert stopped == [f"All log directories failed, the last one is /small: {failure.reason}. {remedy}"]
