"""What clients may rely on; judged from their requests and answers alone. Names as in Jepsen's checker for Kafka."""

from klamm.sim.cluster_tier.history import ACKS_ALL, OFFSETS_TOPIC, GroupCommits, TierHistory, records_told, was_refused
from klamm.sim.cluster_tier.trace import (
    Acknowledged,
    CommittedOffsetRead,
    CorruptPoll,
    Polled,
    PositionLost,
    SequenceRefused,
)


def offsets_are_consistent(history: TierHistory, event: Acknowledged | Polled) -> str | None:
    """An offset of a partition has the same value for all clients, at all times."""
    p = event.send.partition if isinstance(event, Acknowledged) else event.partition
    known, end = history.committed.get(p, {}), history.promised_end(p)
    for offset, value in records_told(event):
        if offset < end and known.get(offset, value) != value:
            return f"{p}: offset {offset} was {known[offset]!r}, and is {value!r}"
    return None


def sends_are_in_order(history: TierHistory, event: Acknowledged) -> str | None:
    """Of two batches that a producer sends one after the other, the later one gets the higher offset."""
    send = event.send
    before = history.last_offsets.get((send.producer, send.partition), -1)
    if send.acks != ACKS_ALL or send.offset < 0 or before < send.offset:
        return None
    if before >= history.promised_end(send.partition):
        return None
    return f"{send.partition}: {send.producer} got offset {before}, and then {send.offset} for {send.values}"


def sequences_continue(history: TierHistory, event: SequenceRefused) -> str | None:
    """The next batch of an idempotent producer is accepted, whichever broker leads.

    As in Kafka it may be refused where the log holds no batch of the producer any more, only the end of a transaction:
    a replica that reads such a log knows the epoch from that, no sequence, and takes no other than 0.
    """
    p = event.send.partition
    if not history.is_promised(p) or not history.is_untouched(p) or history.may_lack_batches_before(event.send):
        return None
    return f"{p}: {event.send.producer} sends {event.send.values} next, and the leader refuses it: {event.error}"


def refused_records_are_never_read(history: TierHistory, event: Polled) -> str | None:
    """No consumer reads a record whose every attempt was refused, or that was never sent."""
    for offset, value in event.records:
        if offset in event.control:
            continue
        send = history.sends.get(value)
        if send is None or send.partition != event.partition:
            return f"{event.partition}: {event.consumer} reads {value!r} at {offset}, which nobody sent there"
        if was_refused(send):
            return f"{event.partition}: {event.consumer} reads {value!r} at {offset}, which was refused"
    return None


def polls_skip_nothing(history: TierHistory, event: Polled) -> str | None:
    """A consumer reads every offset from its position on, in order.

    Partitions with a flipped bit are left out: the CRC of a batch does not cover its base offset.
    """
    facts = history.topics.get(event.partition.topic)
    if facts is None or facts.is_gone or event.partition in history.destroyed:
        return None
    expected = max(event.position, event.log_start)
    for offset, value in event.records:
        if offset != expected:
            return f"{event.partition}: {event.consumer} reads offset {offset} ({value!r}); {expected} is next"
        expected += 1
    return None


def polls_end_at_the_high_watermark(history: TierHistory, event: Polled) -> str | None:
    """A consumer reads no record at or above the high watermark in the same response.

    Partitions with a flipped bit are left out: the CRC of a batch does not cover its base offset.
    """
    if event.partition not in history.destroyed and event.records and event.records[-1][0] >= event.high_watermark:
        last = event.records[-1][0]
        return f"{event.partition}: {event.consumer} reads offset {last}, high watermark {event.high_watermark}"
    return None


def high_watermark_is_monotone(history: TierHistory, event: Polled) -> str | None:
    """Within a leader epoch and one process of the leader, a consumer never gets a lower high watermark than before.

    A leader that restarts begins at its checkpoint. As in Kafka it may do so in the same leader epoch, where a new
    controller takes over meanwhile and finds its broker alive. The high watermarks of followers fall with it.
    """
    if event.follower is not None:
        return None
    before = history.high_watermarks.get(history.key_of_high_watermark(event), -1)
    if event.high_watermark >= before or before > history.promised_end(event.partition):
        return None
    return (
        f"{event.partition}: leader {event.leader} told {event.consumer} of high watermark {before}, and then of"
        f" {event.high_watermark}, both in leader epoch {event.leader_epoch}"
    )


def positions_stay_valid(history: TierHistory, event: PositionLost) -> str | None:
    """The position of a consumer never gets out of range, unless retention or an operator deleted the records there."""
    p = event.partition
    facts = history.topics.get(p.topic)
    if facts is None or facts.has_retention or event.position > history.promised_end(p):
        return None
    if event.position < history.deleted_before.get(p, 0):
        return None
    return f"{p}: {event.consumer} has read up to {event.position}, which is out of range"


def only_whole_batches_are_served(history: TierHistory, event: CorruptPoll) -> str | None:
    """Every batch that a consumer gets matches its CRC, unless a device changed it, which brokers do not check."""
    if event.partition in history.destroyed:
        return None
    return f"{event.partition}: {event.consumer} gets damaged records: {event.why}"


def committed_offsets_are_kept(history: TierHistory, event: CommittedOffsetRead) -> str | None:
    """A coordinator returns the offset that was committed last, also after another broker became coordinator.

    This is not checked where a device lost a part of `__consumer_offsets`, or the topic of the offset was deleted.
    """
    known = history.commits.get((event.group, event.partition), GroupCommits())
    facts = history.topics.get(event.partition.topic)
    if (
        facts is None
        or facts.is_gone
        or not history.is_untouched(OFFSETS_TOPIC)
        or known.allows(event.offset, history.offsets_epoch)
    ):
        return None
    return (
        f"{event.partition}: the committed offset of {event.group} is {event.offset}; {known.stored} was stored, and"
        f" {sorted(known.open)} may have been"
    )
