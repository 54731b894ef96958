"""What a node does with its log directories before it is registered."""

import errno
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from structlog.testing import capture_logs
from tests.support.memory_zookeeper import MemoryEnsemble
from tests.unit.broker.node_parts import context

from klamm.broker.context import NodeContext
from klamm.broker.identity import PID_FILE
from klamm.broker.lifecycle import Lifecycle
from klamm.broker.storage import build_storage
from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.disk import RealDisk
from klamm.zk.store import Store


class FullDisk(RealDisk):
    """A disk whose directories in `full` have no space for another file."""

    def __init__(self, *full: str) -> None:
        super().__init__()
        self._full = full

    def write_atomically(self, path: str, content: bytes) -> None:
        if path.startswith(self._full):
            raise OSError(errno.ENOSPC, "no space left on device", path)
        super().write_atomically(path, content)


async def node_context(tmp_path: Path, ensemble: MemoryEnsemble, *lines: str) -> NodeContext:
    store = Store(ensemble.client())
    await store.create_top_level_paths()
    sessions: Any = SimpleNamespace(store=store, add_listener=lambda _: None)
    return replace(context(tmp_path, *lines), sessions=sessions)


async def test_the_records_of_a_topic_whose_config_cannot_be_read_are_kept(tmp_path: Path) -> None:
    ensemble = MemoryEnsemble()
    node = await node_context(tmp_path, ensemble, "listeners=PLAINTEXT://127.0.0.1:0")
    replicas = {0: ReplicaAssignment((BrokerId(1),))}
    for topic in ("archive", "orders"):
        await node.store().create_topic(topic, replicas, None, {"retention.ms": "77"})
        (tmp_path / "logs" / f"{topic}-0").mkdir(parents=True)
    ensemble.unreadable.add("/config/topics/archive")
    lifecycle = Lifecycle()
    storage = build_storage(node, lifecycle)

    with capture_logs() as lines:
        await lifecycle.start()

    configs = {t: log.config for t in ("archive", "orders") if (log := storage.logs.get(TopicPartition(t, 0)))}
    assert {t: (c.is_deleted, c.retention_ms) for t, c in configs.items()} == {
        "archive": (False, -1),
        "orders": (True, 77),
    }
    [line] = [line for line in lines if "cannot be read" in line["event"]]
    assert line["topic"] == "archive"
    await lifecycle.close()


async def test_a_node_writes_its_process_id_to_each_log_directory_that_is_not_full(
    tmp_path: Path,
) -> None:
    full, free = f"{tmp_path}/full", f"{tmp_path}/free"
    node = await node_context(
        tmp_path, MemoryEnsemble(), "listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={full},{free}"
    )
    for is_full in (False, True):
        disk = FullDisk(*([full] if is_full else []))
        lifecycle = Lifecycle()
        build_storage(replace(node, world=replace(node.world, disk=disk)), lifecycle)
        await lifecycle.start()
        found = [directory for directory in (full, free) if RealDisk().exists(f"{directory}/{PID_FILE}")]
        assert found == ([free] if is_full else [full, free])
        await lifecycle.close()
