"""One damaged file in a log directory: what is damaged, how, and what must hold after the next start.

A case is a number: the same number is the same damage.
`pytest tests/unit/log/test_damaged_files.py --damage-cases 10000`.
"""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.support.managed_logs import get_or_create
from tests.unit.log.simulated_node import DIRECTORY, SimulatedNode
from tests.unit.log.support import NOW_MS, batch, read_bytes

from klamm.config.topic_config import TopicConfig
from klamm.log.errors import BadLogDirectory
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.log.producers import Origin
from klamm.log.transactions import AbortedTransaction
from klamm.model.ids import TopicPartition
from klamm.sim.disk import SimulatedDisk
from klamm.wire.records import (
    ControlType,
    CorruptRecords,
    EndMarker,
    batches,
    build_end_marker,
    crc_is_valid,
)

PARTITIONS = (TopicPartition("orders", 0), TopicPartition("plain", 0))
OVERRIDES = {tp.topic: {"segment.bytes": "500", "index.interval.bytes": "1"} for tp in PARTITIONS}
CONFIG = TopicConfig.parse(OVERRIDES["orders"])
KINDS = ("flip", "flip", "cut", "zeros", "empty", "missing", "rubbish behind", "rubbish")

MAX_OFFSET = 1000
"""A base offset with a flipped bit in a batch that was not flushed may be far away."""

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Truth:
    """What a partition held before the damage. Batches by base offset."""

    batches: Mapping[int, bytes]
    bases: tuple[int, ...]
    end: int
    recovery_point: int
    aborted: tuple[AbortedTransaction, ...]

    def flushed_outside(self, damaged: Collection[int]) -> list[int]:
        """Base offsets of the flushed batches that do not lie in the segments that begin at these offsets."""
        return [
            offset
            for offset in self.batches
            if offset < self.recovery_point and max(base for base in self.bases if base <= offset) not in damaged
        ]


@dataclass(frozen=True)
class Before:
    files: Files
    truths: Mapping[TopicPartition, Truth]
    is_clean: bool


@dataclass(frozen=True)
class Damage:
    path: str
    kind: str
    content: bytes | None
    """None where the file is missing."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def partition(self) -> TopicPartition | None:
        return next((tp for tp in PARTITIONS if self.path.startswith(f"{DIRECTORY}/{tp}/")), None)

    @property
    def log_base(self) -> int | None:
        """Base offset of the segment whose `.log` file is damaged."""
        return int(self.name[:20]) if self.name.endswith(".log") else None


def build(*, is_clean: bool) -> Before:
    """Two logs of several segments, the first with transactions; flushed in part, or closed."""
    node = SimulatedNode()
    truths: dict[TopicPartition, Truth] = {}

    async def live(logs: LogManager) -> None:
        for partition in PARTITIONS:
            log = get_or_create(logs, partition, CONFIG, None, is_new=True)
            _fill(log, with_transactions=partition is PARTITIONS[0])
            await log.flush(log.segments.from_slot(5)[0].base_offset)
            log.update_high_watermark(log.end_offset)
            truths[partition] = _truth(log, is_clean=is_clean)
        await logs.write_small_files()
        await logs.write_recovery_points()
        await logs.write_high_watermarks()
        if is_clean:
            await logs.close()

    node.run(live)
    return Before(files_of(node.disk, DIRECTORY), truths, is_clean)


def _fill(log: Log, *, with_transactions: bool) -> None:
    """Append records, transactions and leader epochs to a log."""
    sequence = 0
    for number in range(60):
        epoch = number // 20
        if with_transactions and number % 3 == 1:
            log.append_as_leader(batch(f"t{number}", producer=(9, 0, sequence), transactional=True), epoch)
            sequence += 1
            kind = ControlType.ABORT if number % 2 else ControlType.COMMIT
            log.append_as_leader(build_end_marker(EndMarker(kind, 0), 9, 0, NOW_MS), epoch, Origin.COORDINATOR)
        else:
            producer = (5, 0, number) if not with_transactions else None
            log.append_as_leader(batch(f"value {number}", timestamp=NOW_MS + number, producer=producer), epoch)


def _truth(log: Log, *, is_clean: bool) -> Truth:
    """What the log contains now, to compare with it after damage."""
    held = dict(served(log))
    aborted = tuple(log.aborted_transactions(0, log.end_offset))
    bases = tuple(segment.base_offset for segment in log.segments)
    assert len(bases) > 6
    return Truth(held, bases, log.end_offset, log.end_offset if is_clean else log.recovery_point, aborted)


def files_of(disk: SimulatedDisk, directory: str) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for name in disk.list_directory(directory):
        path = f"{directory}/{name}"
        if disk.is_directory(path):
            files |= files_of(disk, path)
        elif name != ".lock":
            files[path] = disk.read(path)
    return files


def served(log: Log) -> Iterator[tuple[int, bytes]]:
    """Each batch with a right checksum and base offset, as a consumer gets them that skips damage."""
    offset = log.start_offset
    while offset < min(log.end_offset, MAX_OFFSET):
        try:
            content = read_bytes(log, offset, 1)
            header = next(iter(batches(content)), None)
        except CorruptRecords:
            header = None
        if header is not None and crc_is_valid(content, header) and header.base_offset == offset:
            yield header.base_offset, bytes(content[header.position : header.position + header.size])
            offset = header.next_offset
        else:
            offset += 1


def draw(before: Before, dice: random.Random) -> list[Damage]:
    """One damaged file, or two of one log."""
    first = _draw(before, dice, sorted(before.files))
    near = [p for p in sorted(before.files) if p != first.path and p.startswith(f"{DIRECTORY}/{first.partition}/")]
    return [first, _draw(before, dice, near)] if near and dice.random() < 0.5 else [first]


def _draw(before: Before, dice: random.Random, paths: Sequence[str]) -> Damage:
    """A random damage of one of these files."""
    path = dice.choice(paths)
    content = before.files[path]
    kind = dice.choice(KINDS)
    if kind == "missing":
        return Damage(path, kind, None)
    at = dice.randrange(len(content)) if content else 0
    if kind == "flip" and content:
        return Damage(path, kind, content[:at] + bytes([content[at] ^ (1 << dice.randrange(8))]) + content[at + 1 :])
    if kind == "cut":
        return Damage(path, kind, content[:at])
    if kind == "zeros":
        until = dice.randint(at, len(content))
        return Damage(path, kind, content[:at] + bytes(until - at) + content[until:])
    if kind == "rubbish behind":
        return Damage(path, kind, content + dice.randbytes(dice.randint(1, 100)))
    if kind == "rubbish":
        return Damage(path, kind, dice.randbytes(len(content)))
    return Damage(path, "empty", b"")


def check(before: Before, damages: Sequence[Damage]) -> None:
    """Start with the damaged files, look at everything, append, stop, start again."""
    node = SimulatedNode()
    for path, content in before.files.items():
        node.disk.make_directories(path.rpartition("/")[0])
        node.disk.open(path, create=True).pwrite([content], 0)
    for damage in damages:
        node.overwrite(damage.path, damage.content)

    async def look(logs: LogManager) -> None:
        for partition, truth in before.truths.items():
            log = logs.get(partition)
            assert log is not None, f"{partition} is offline"
            _check_log(log, truth, [d for d in damages if d.partition in (partition, None)])
        await logs.close()

    async def look_again(logs: LogManager) -> None:
        """Check that the records appended after the damage survived the next restart."""
        for partition in before.truths:
            log = logs.get(partition)
            assert log is not None
            assert b"after" in read_bytes(log, log.end_offset - 1, 1 << 20)

    try:
        node.run(look, overrides=OVERRIDES)
    except BadLogDirectory:
        if damages[0].name != "meta.properties":
            raise
        return
    node.run(look_again, overrides=OVERRIDES)


def _check_log(log: Log, truth: Truth, damages: Sequence[Damage]) -> None:
    """Assert that the opened log lost only what the damages explain."""
    held = dict(served(log))
    damaged = {damage.log_base for damage in damages if damage.log_base is not None}
    for offset, content in held.items():
        assert _is_one_of(content, truth.batches, is_damaged=bool(damaged)), f"wrong batch at {offset}"
    names = [damage.name for damage in damages]
    if "log-start-offset-checkpoint" not in names:  # it has no checksum: a start that lies in the log is believed
        lost = [offset for offset in truth.flushed_outside(damaged) if offset not in held]
        assert not lost, f"flushed batches at {lost} are gone"
        if not damaged and not any(name.endswith(".txnindex") for name in names):
            expected = [a for a in truth.aborted if a.last_offset < log.end_offset]
            assert log.aborted_transactions(log.start_offset, log.end_offset) == expected
    end = log.end_offset
    log.append_as_leader(batch("after"), 50)
    last = list(batches(read_bytes(log, end, 1 << 20)))
    assert [h.base_offset for h in last] == [end]


def _is_one_of(content: bytes, truth: Mapping[int, bytes], *, is_damaged: bool) -> bool:
    """Base offset and leader epoch lie outside the checksum: in a damaged `.log` file they may be wrong."""
    if not is_damaged:
        return content in truth.values()
    return any(content[8:12] == other[8:12] and content[16:] == other[16:] for other in truth.values())
