"""What an export reads, whatever the pipeline's start and limits are, and which directories it writes to."""

from pathlib import Path
from typing import Any

import pytest

from klamm.client.offsets import EARLIEST, LATEST
from klamm.model.errors import UsageError
from klamm.pipeline import export
from klamm.pipeline.export import MANIFEST, export_options, export_pipeline
from klamm.pipeline.spec import parse_spec
from klamm.runtime.disk import DirectoryLock, RealDisk

FILE = """pipeline: orders
source:
  bootstrap: 127.0.0.1:9092
  topics: orders
  start: latest
  value: {{format: {format}}}
  options: {{maxOffsetsPerTrigger: 10, kafka.client.id: export, minPartitions: 3, startingTimestamp: 1700000000000}}
sink: {{delta: table}}
"""


@pytest.mark.parametrize("value_format", ["raw", "string"])
def test_an_export_reads_from_the_first_record_to_the_last_and_keeps_records_that_cannot_be_decoded(
    value_format: str,
) -> None:
    spec = parse_spec(RealDisk(), "/x/orders.yaml", FILE.format(format=value_format))

    options = export_options(spec)

    assert (options.start.everywhere, options.end.everywhere) == (EARLIEST, LATEST)
    assert (options.trigger.max_offsets, options.trigger.max_bytes) == (None, None)
    assert (options.client_id, options.min_partitions, options.read_committed) == ("export", 3, True)
    assert options.values.on_error.reports


class TwoProcesses(RealDisk):
    """A disk on which each lock is asked for by another process."""

    def __init__(self) -> None:
        super().__init__()
        self.held: set[str] = set()

    def lock(self, path: str) -> DirectoryLock | None:
        if path in self.held:
            return None
        self.held.add(path)
        Path(path).touch()
        return Held(self.held, path)


class Held:
    def __init__(self, held: set[str], path: str) -> None:
        self.held = held
        self.path = path

    def release(self) -> None:
        self.held.remove(self.path)


def test_an_export_into_a_directory_that_another_export_writes_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = TwoProcesses()
    directory = tmp_path / "export"
    spec = parse_spec(RealDisk(), "/x/orders.yaml", FILE.format(format="raw"))
    refusals = []

    def again() -> None:
        with pytest.raises(UsageError) as refused:
            export_pipeline(None, spec, disk, str(directory))  # type: ignore[arg-type]  # nothing uses the session
        refusals.append(str(refused.value))

    def write(*_given: Any) -> list[Any]:
        again()
        (directory / "part").mkdir()
        again()
        return []

    monkeypatch.setattr(export, "export_records", write)
    export_pipeline(None, spec, disk, str(directory))  # type: ignore[arg-type]
    assert sorted(p.name for p in directory.iterdir()) == [MANIFEST, "part"]
    again()

    assert "another export writes to it" in refusals[0]
    assert all("not an empty directory" in refusal for refusal in refusals[1:])
    assert disk.held == set()
