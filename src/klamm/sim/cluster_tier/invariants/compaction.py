"""What the log cleaner may remove of a compacted topic; judged from acknowledgements and one last read."""

from collections.abc import Mapping
from typing import Final, Protocol

from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.history import TierHistory
from klamm.sim.cluster_tier.invariants.rest import FinalRead

_KEYS: Final = 5
_ONCE: Final = 10


class CompactedCluster(Protocol):
    """What invariants of compaction look at."""

    tier: TierHistory

    @property
    def compacted_reads(self) -> Mapping[TopicPartition, FinalRead]:
        """What was read of the compacted partition at the end; empty where the schedule has none."""
        ...


def key_of(value: bytes) -> bytes:
    """The key of a keyed producer's record: every tenth has a key of its own, the others have one of five.

    Without the former the newest value of each key would be in the active segment, which is not compacted.
    """
    producer, _, text = value.rstrip(b".").partition(b"/")
    number = int(text)
    return b"%s/once/%d" % (producer, number) if number % _ONCE == 0 else b"%s/%d" % (producer, number % _KEYS)


def newest_values_survive_compaction(cluster: CompactedCluster) -> str | None:
    """A compacted topic has the newest acknowledged value of each key, and every record is at its own offset.

    This is not checked where a device lost a part of the topic. Where a bit flipped, the only replica that has a record
    may have it damaged: the leader then refuses to send it.
    """
    history = cluster.tier
    for p, read in cluster.compacted_reads.items():
        if read.is_damaged and p in history.destroyed:
            continue
        if read.error:
            return f"{p}: cannot be read: {read.error}"
        if history.is_untouched(p) and (wrong := _wrong_record(history, p, read) or _lost_key(history, p, read)):
            return wrong
    return None


def _wrong_record(history: TierHistory, p: TopicPartition, read: FinalRead) -> str | None:
    """The first record that is out of order, or not where it was acknowledged; None if there is none."""
    last, acknowledged = -1, history.acknowledged.get(p, {})
    for offset, value in read.records:
        if offset <= last:
            return f"{p}: offset {offset} follows offset {last}"
        if acknowledged.get(value, -1) not in (-1, offset):
            return f"{p}: {value!r} is at offset {offset}, acknowledged at {acknowledged[value]}"
        last = offset
    return None


def _lost_key(history: TierHistory, p: TopicPartition, read: FinalRead) -> str | None:
    """A key whose newest acknowledged value is gone, without a newer one; None if there is none."""
    newest: dict[bytes, int] = {}
    for value, offset in history.acknowledged.get(p, {}).items():
        newest[key_of(value)] = max(offset, newest.get(key_of(value), -1))
    kept = {key_of(value): offset for offset, value in read.records}
    for key, offset in newest.items():
        if kept.get(key, -1) < offset:
            return (
                f"{p}: the newest value of key {key!r} was acknowledged at {offset}; its last one is at {kept.get(key)}"
            )
    return None
