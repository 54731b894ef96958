"""What the log cleaner may remove of a compacted topic; judged from acknowledgements, reads, and disks at rest."""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.history import TRANSACTIONS_TOPIC, TierHistory
from klamm.sim.cluster_tier.invariants.rest import FinalRead
from klamm.sim.cluster_tier.keyed_records import is_tombstone, key_of, may_delete
from klamm.sim.cluster_tier.trace import Send, SendState, TableRead, TransactionState

_CLEANED_AFTER_S: Final = 25.0
"""A tombstone that may be removed is gone after this time: two cleanings, and a segment that is rolled before."""
Table = Mapping[bytes, tuple[int, bytes]]
"""Offset and name of the last record of each key."""


class CompactedCluster(Protocol):
    """What invariants of compaction look at."""

    tier: TierHistory

    @property
    def compacted_reads(self) -> Mapping[TopicPartition, FinalRead]:
        """What was read of the compacted partition at the end; empty where the schedule has none."""
        ...


# ---- while faults last


def tables_are_up_to_date(history: TierHistory, event: TableRead) -> str | None:
    """Whoever reads a compacted topic to its end has the newest record of each key, for a time also if it deletes.

    Only keys are compared whose newest record, acknowledged or not, is known to lie before the end of the read.
    """
    if not history.is_untouched(event.partition):
        return None
    if wrong := _wrong_read(history, event):
        return wrong
    for key, name in history.newest_of_key.items():
        send = history.sends[name]
        offset = history.acknowledged.get(event.partition, {}).get(name, -1)
        if send.state is not SendState.ACKNOWLEDGED or not 0 <= offset < event.end or not _is_certain(send):
            continue
        found = event.table.get(key)
        if found == (offset, name):
            continue
        if is_tombstone(name) and not _must_stay(history, send, event.ended_s):
            continue
        return (
            f"{event.partition}: {event.reader} has read up to {event.end}; the newest record of key {key!r} is"
            f" {name!r} at {offset}, and it has {found}"
        )
    return None


def _is_certain(send: Send) -> bool:
    """Whether the records count: they are in no transaction, or in one that is known to be committed."""
    return send.transaction is None or send.transaction.state is TransactionState.COMMITTED


def _is_aborted(history: TierHistory, name: bytes) -> bool:
    """Whether the record is of a transaction that can only be aborted, as its coordinator must know."""
    send = history.sends.get(name)
    if send is None or send.transaction is None or TRANSACTIONS_TOPIC in history.destroyed:
        return False
    return send.transaction.state is TransactionState.ABORTED


def young_records_stay(history: TierHistory, event: TableRead) -> str | None:
    """Whoever reads a compacted topic from its beginning gets all records that are younger than the compaction lag."""
    p = event.partition
    if event.position or not history.compaction_lag_s or not history.clocks_are_right or not history.is_untouched(p):
        return None
    found = {name for _, name in event.records}
    for name, offset in history.acknowledged.get(p, {}).items():
        send = history.sends[name]
        is_young = _is_certain(send) and event.ended_s < send.began_s + history.compaction_lag_s
        if is_young and 0 <= offset < event.end and name not in found:
            return f"{p}: {event.reader} finds {name!r} not, which was sent at {send.began_s:.3f} s"
    return None


def _wrong_read(history: TierHistory, event: TableRead) -> str | None:
    """The first record of a read that nobody sent, or that is not at its offset; None if there is none."""
    last = event.position - 1
    for offset, name in event.records:
        if offset <= last:
            return f"{event.partition}: {event.reader} reads offset {offset} after offset {last}"
        send = history.sends.get(name)
        if send is None or send.partition != event.partition or send.state is SendState.REFUSED:
            return f"{event.partition}: {event.reader} reads {name!r} at {offset}, which was not sent, or was refused"
        if _is_aborted(history, name):
            return f"{event.partition}: {event.reader} reads {name!r} at {offset} of an aborted transaction"
        if history.acknowledged.get(event.partition, {}).get(name, -1) not in (-1, offset):
            return f"{event.partition}: {event.reader} reads {name!r} at {offset}, where it was not acknowledged"
        last = offset
    return None


def _must_stay(history: TierHistory, send: Send, now_s: float) -> bool:
    """Whether a tombstone of this batch must still be there: delete.retention.ms are not over, by any clock."""
    return history.clocks_are_right and now_s < send.began_s + history.delete_retention_s


# ---- at rest


def compacted_transactions_are_over(cluster: CompactedCluster) -> str | None:
    """Consumers of committed data read no record of an aborted transaction in a compacted topic, and none is open."""
    history = cluster.tier
    for p, read in cluster.compacted_reads.items():
        if read.error or not history.is_untouched(p) or TRANSACTIONS_TOPIC in history.destroyed:
            continue
        if read.last_stable_offset != read.high_watermark:
            return f"{p}: last stable offset {read.last_stable_offset}, high watermark {read.high_watermark}"
        if aborted := [record for record in read.committed if _is_aborted(history, record[1])]:
            return f"{p}: {aborted[0]} is read, of an aborted transaction"
    return None


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
        if not history.is_untouched(p):
            continue
        if wrong := _wrong_record(history, p, read) or _lost_value(history, p, table_of(read.records)):
            return wrong
    return None


def deleted_keys_stay_deleted(cluster: CompactedCluster) -> str | None:
    """No in-sync replica has a value of a key that was deleted, once the tombstone that deleted it is gone.

    A replica that was out of the ISR for longer than delete.retention.ms may keep the value for ever, as in Kafka: the
    tombstone was gone before the replica fetched again. So only replicas are compared that were in the ISR when the
    tombstone was acknowledged, or soon enough afterwards. No tombstone goes before its time is over.
    """
    history = cluster.tier
    for p, read in cluster.compacted_reads.items():
        if read.error or not history.is_untouched(p):
            continue
        for broker in history.isr(p):
            log = history.disks[broker].of(p)
            wrong = None if log is None else _returned_key(history, p, broker, table_of(log.records()), read.at_s)
            if wrong:
                return wrong
    return None


def tombstones_are_removed(cluster: CompactedCluster) -> str | None:
    """A tombstone goes some time after delete.retention.ms, on every replica whose disk and clock had no faults."""
    history = cluster.tier
    for p, read in cluster.compacted_reads.items():
        if read.error or not history.is_untouched(p) or not history.clocks_are_right:
            continue
        latest_s = read.at_s - history.delete_retention_s - 2 * history.compaction_lag_s - _CLEANED_AFTER_S
        for broker in history.isr(p):
            log = history.disks[broker].of(p)
            if log is None or broker in history.failed_disks:
                continue
            for offset, name in log.records():
                if is_tombstone(name) and offset < log.active_base and history.sends[name].attempted_s < latest_s:
                    return f"{p}: replica {broker} still has the tombstone {name!r} at {offset}"
    return None


def table_of(records: Iterable[tuple[int, bytes]]) -> Table:
    """The last of these records for each key."""
    return {key_of(name): (offset, name) for offset, name in records}


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


def _newest_acknowledged(history: TierHistory, p: TopicPartition) -> dict[bytes, tuple[int, bytes]]:
    """Offset and name of the record of each key that was acknowledged at the highest offset."""
    newest: dict[bytes, tuple[int, bytes]] = {}
    for name, offset in history.acknowledged.get(p, {}).items():
        newest[key_of(name)] = max((offset, name), newest.get(key_of(name), (-1, b"")))
    return newest


def _lost_value(history: TierHistory, p: TopicPartition, table: Table) -> str | None:
    """A key whose newest acknowledged value is gone, without a newer one; None if there is none."""
    for key, (offset, name) in _newest_acknowledged(history, p).items():
        if offset < 0 or is_tombstone(name) or _may_be_deleted(history, key, name):
            continue
        if (send := history.sends.get(name)) is not None and not _is_certain(send):
            continue
        kept, _ = table.get(key, (None, b""))
        if kept is None or kept < offset:
            return f"{p}: the newest value of key {key!r} was acknowledged at {offset}; its last one is at {kept}"
    return None


def _may_be_deleted(history: TierHistory, key: bytes, name: bytes) -> bool:
    """Whether a tombstone may follow the newest acknowledged record of the key that was sent and not acknowledged."""
    newest = history.newest_of_key.get(key, name)
    return newest != name and may_delete(newest)


def _returned_key(history: TierHistory, p: TopicPartition, broker: int, table: Table, now_s: float) -> str | None:
    """A key whose tombstone is gone too early, or without the values before it; None if there is none."""
    for key, (offset, name) in _newest_acknowledged(history, p).items():
        kept, other = table.get(key, (-1, b""))
        if offset < 0 or not is_tombstone(name) or kept >= offset:
            continue
        if _must_stay(history, history.sends[name], now_s):
            return f"{p}: replica {broker} has lost the tombstone {name!r} of key {key!r} at {offset} too early"
        if kept >= 0 and broker in _holders(history, name):
            return f"{p}: replica {broker} has {other!r} of key {key!r} at {kept}, which was deleted at {offset}"
    return None


def _holders(history: TierHistory, name: bytes) -> set[int]:
    """The replicas that have certainly had this tombstone.

    They were in the ISR when it was acknowledged or later, and before any replica could have removed it.
    """
    send = history.sends[name]
    if not history.clocks_are_right or send.acknowledged_s < 0:
        return set()
    holders: set[int] = set()
    ends = [at_s for at_s, _ in history.compacted_isrs[1:]] + [float("inf")]
    for (from_s, isr), until_s in zip(history.compacted_isrs, ends, strict=True):
        if until_s >= send.acknowledged_s and from_s < send.began_s + history.delete_retention_s:
            holders |= set(isr)
    return holders if send.acknowledged_s < send.began_s + history.delete_retention_s else set()
