"""What the log's tests say often: a partition that can be opened, cut and reopened; batches in a word."""

from collections.abc import Sequence

from klamm.config.topic_config import TopicConfig
from klamm.log.loader import CheckpointedState
from klamm.log.log import Log
from klamm.model.ids import TopicPartition
from klamm.runtime.world import World
from klamm.wire.records import BatchHeader, NewRecord, batches, build_batch, records

ORDERS = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000
SEGMENT_BYTES = 420


class ManualClock:
    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms


class Partition:
    """One log directory over several lives."""

    def __init__(self, world: World, directory: str) -> None:
        self.world = world
        self.directory = directory

    def open(self, known: CheckpointedState | None = None, /, **configs: object) -> Log:
        """Configs with underscores for dots; recovers unless `known` says clean."""
        texts = {name.replace("_", "."): str(value) for name, value in configs.items()}
        return Log.open(self.world, self.directory, ORDERS, TopicConfig.parse(texts), known=known)


def batch(
    *values: str,
    key: bytes | None = None,
    timestamp: int = NOW_MS,
    producer: tuple[int, int, int] | None = None,
    base_offset: int = 0,
    epoch: int = -1,
    transactional: bool = False,
) -> bytes:
    """A batch with these values; `producer` is (id, epoch, first sequence)."""
    content = [NewRecord(value.encode(), key, timestamp) for value in values]
    pid, producer_epoch, sequence = producer or (-1, -1, -1)
    return build_batch(
        content,
        base_offset=base_offset,
        leader_epoch=epoch,
        producer_id=pid,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def headers_of(log: Log, offset: int | None = None) -> list[BatchHeader]:
    return [header for header, _ in _walk(log, offset)]


def values_of(log: Log, offset: int | None = None) -> list[str]:
    """Every value from `offset` (None: the start) to the end, in batches as a reader gets them."""
    return [(r.value or b"").decode() for header, buffer in _walk(log, offset) for r in records(buffer, header)]


def read_bytes(log: Log, offset: int, max_bytes: int) -> bytes:
    """The bytes of the batches that a read returns."""
    content = log.read(offset, max_bytes).records
    assert isinstance(content, bytes)
    return content


def _walk(log: Log, offset: int | None) -> Sequence[tuple[BatchHeader, bytes]]:
    found: list[tuple[BatchHeader, bytes]] = []
    position = log.start_offset if offset is None else offset
    while position < log.end_offset:
        content = read_bytes(log, position, 1 << 20)
        headers = list(batches(content))
        assert headers, f"nothing at {position} of {log}"
        found += [(header, content) for header in headers]
        position = headers[-1].next_offset
    return found


def many_segments(orders: Partition, count: int = 1000) -> Log:
    """A closed log of more than 20 small segments."""
    log = orders.open(segment_bytes=SEGMENT_BYTES, index_interval_bytes=1)
    for number in range(count):
        log.append_as_leader(batch(f"value {number}", timestamp=NOW_MS + number), number // 300)
    log.close()
    assert len(log.segments) > 20
    return log


def reopened(orders: Partition, known: CheckpointedState, policy: str = "delete") -> Log:
    """The log, opened again with these checkpoints."""
    return orders.open(known, segment_bytes=SEGMENT_BYTES, index_interval_bytes=1, cleanup_policy=policy)
