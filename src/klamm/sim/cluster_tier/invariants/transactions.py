"""Transactions: what consumers of committed data read, judged from requests and answers of the copiers."""

from collections import Counter
from collections.abc import Iterator, Mapping

from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.clients.copier import original_of
from klamm.sim.cluster_tier.history import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TierHistory
from klamm.sim.cluster_tier.invariants.rest import RestingCluster
from klamm.sim.cluster_tier.trace import Acknowledged, Polled, SendState, Transaction, TransactionState


def only_committed_transactions_are_read(history: TierHistory, event: Polled) -> str | None:
    """A consumer of committed data reads no record of a transaction whose commit was never requested."""
    if event.aborted is None or not _keeps_transactions(history):
        return None
    for offset, value in event.records:
        send = history.sends.get(value)
        if offset in event.control or offset in event.aborted or send is None or send.transaction is None:
            continue
        if send.transaction.state is TransactionState.ABORTED and history.is_untouched(event.partition):
            return f"{event.partition}: {event.consumer} reads {value!r} at {offset} of an aborted transaction"
    return None


def fenced_producers_write_nothing(history: TierHistory, event: Acknowledged) -> str | None:
    """Once a producer has its epoch from the coordinator, no producer of a lower epoch appends a batch."""
    send, transaction = event.send, event.send.transaction
    if transaction is None or not _keeps_transactions(history) or not history.is_untouched(send.partition):
        return None
    newest = history.newest_producers[transaction.group]
    if newest.epoch <= transaction.epoch or send.attempted_s <= newest.at_s:
        return None
    return (
        f"{send.partition}: {send.producer} wrote {send.values} at {send.attempted_s:.3f} s, although epoch"
        f" {newest.epoch} of {transaction.group} had fenced it at {newest.at_s:.3f} s"
    )


def transactions_are_whole(cluster: RestingCluster) -> str | None:
    """Consumers of committed data get all records of a transaction, or none; all of those whose commit was answered."""
    history = cluster.tier
    if not _keeps_transactions(history):
        return None
    read = {value for p, final in cluster.final_reads.items() if not final.error for _, value in final.committed}
    for transaction in history.transactions:
        if not _is_judged(cluster, transaction):
            continue
        acknowledged = [v for s in transaction.sends if s.state is SendState.ACKNOWLEDGED for v in s.values]
        missing = [value for value in acknowledged if value not in read]
        is_seen = any(value in read for send in transaction.sends for value in send.values)
        if transaction.state is TransactionState.COMMITTED and missing:
            return f"{transaction.group}: its transaction was committed, and {missing[0]!r} is not read"
        if is_seen and missing:
            return f"{transaction.group}: a part of its transaction is read, and {missing[0]!r} is not"
        if is_seen and transaction.state is TransactionState.ABORTED:
            return f"{transaction.group}: its transaction was not committed, and {acknowledged} are read"
    return None


def no_transaction_stays_open(cluster: RestingCluster) -> str | None:
    """Every transaction has ended: the last stable offset of each partition is its high watermark."""
    if not _keeps_transactions(cluster.tier):
        return None
    for p, read in cluster.final_reads.items():
        if not read.error and cluster.tier.is_untouched(p) and read.last_stable_offset != read.high_watermark:
            return f"{p}: last stable offset {read.last_stable_offset}, high watermark {read.high_watermark}"
    return None


def records_are_copied_once(cluster: RestingCluster) -> str | None:
    """Of each record before the copier's committed offset there is one copy; of later records there is none.

    This is not checked where a device lost a part of `__consumer_offsets`: the copier then copies records again.
    """
    history = cluster.tier
    if not history.is_untouched(OFFSETS_TOPIC):
        return None
    for (group, source), end in cluster.copied_offsets.items():
        final = cluster.final_reads.get(source)
        if final is None or final.error or not _keeps_transactions(history):
            continue
        if not history.is_promised(source) or not history.is_untouched(source):
            continue
        transactions = [t for t in history.transactions if (t.group, t.source) == (group, source)]
        if not all(_is_judged(cluster, t) for t in transactions):
            continue
        copies = Counter(original_of(value) for value in _copies(cluster, transactions))
        if not history.may_start_later(source):
            expected = {offset for offset, _ in final.committed if offset < end}
            if missing := expected - copies.keys():
                return f"{group} committed offset {end} of {source}; offset {min(missing)} was not copied"
        for offset, count in sorted(copies.items()):
            if count > 1 or offset >= end:
                return f"{group} committed offset {end} of {source}; offset {offset} was copied {count} times"
    return None


def _copies(cluster: RestingCluster, transactions: list[Transaction]) -> Iterator[bytes]:
    """The values of the transactions' records that consumers of committed data read."""
    values = {value for t in transactions for s in t.sends for value in s.values}
    finals: Mapping[TopicPartition, object] = cluster.final_reads
    for p in finals:
        yield from (value for _, value in cluster.final_reads[p].committed if value in values)


def _is_judged(cluster: RestingCluster, transaction: Transaction) -> bool:
    """Whether no fault may have taken records of the transaction, and no operator deleted them, or their topic."""
    partitions = {send.partition for send in transaction.sends}
    return all(
        cluster.tier.is_promised(p)
        and cluster.tier.is_untouched(p)
        and not cluster.tier.may_start_later(p)
        and p.topic not in cluster.tier.recreations
        and p in cluster.final_reads
        and not cluster.final_reads[p].error
        for p in partitions
    )


def _keeps_transactions(history: TierHistory) -> bool:
    """Whether no device destroyed what the coordinator of transactions keeps.

    `__transaction_state` is synced before anything is acknowledged: a power loss takes nothing that counts.
    """
    return TRANSACTIONS_TOPIC not in history.destroyed
