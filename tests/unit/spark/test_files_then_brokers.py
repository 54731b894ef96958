"""`logDirs` with `kafka.bootstrap.servers`: what is planned where the files are damaged."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.spark.scripts import logged
from tests.unit.spark.stored_logs import ORDERS, TOPIC_ID, NoBrokers, make_log, segment_paths, stored_options

from klamm.client.blocking import BlockingClient
from klamm.runtime.disk import RealDisk
from klamm.spark.log_dirs import LogDirs
from klamm.spark.ranges import OffsetRange
from klamm.spark.read_client import settings_of
from klamm.spark.transports import StoredFirstClient

WANTED = OffsetRange(ORDERS, 0, 30, TOPIC_ID)


def damage_metadata(directory: Path) -> None:
    (directory / "partition.metadata").write_text("no metadata")


def damage_segment(directory: Path) -> None:
    path = segment_paths(directory.parent)[0]
    content = bytearray(path.read_bytes())
    content[8:12] = b"\xff\xff\xff\xff"
    path.write_bytes(content)


HARM = {"damaged metadata": damage_metadata, "damaged segment": damage_segment}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
async def test_a_replica_that_cannot_be_read_while_a_read_is_planned_is_fetched_from_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None]
) -> None:
    await make_log(tmp_path)
    directory = tmp_path / str(ORDERS)
    options = stored_options(tmp_path, kafka__bootstrap__servers="a:1", kafka__isolation__level="read_committed")
    planner = StoredFirstClient(
        BlockingClient(NoBrokers(), options.bootstrap, settings_of(options)), options, RealDisk()
    )
    assert planner.locate([WANTED])[0].replica is not None
    for snapshot in directory.glob("*.snapshot"):
        snapshot.unlink()
    refresh = LogDirs.refresh

    def refresh_and_harm(directories: LogDirs) -> None:
        refresh(directories)
        harm(directory)

    monkeypatch.setattr(LogDirs, "refresh", refresh_and_harm)
    with logged("orders-0 is fetched from brokers, because its files cannot be read"):
        assert planner.locate([WANTED]) == [WANTED]
