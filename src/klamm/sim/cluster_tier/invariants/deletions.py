"""Deletion of records and topics by operators; judged from requests, answers and disks."""

from klamm.model.ids import BrokerId
from klamm.sim.cluster_tier.history import TierHistory
from klamm.sim.cluster_tier.trace import Expired, Polled


def nothing_else_is_deleted(history: TierHistory, event: Polled | Expired) -> str | None:
    """The log of a topic without retention starts at 0, or before the highest offset of a request to delete records."""
    p = event.partition
    facts = history.topics.get(p.topic)
    if facts is None or facts.has_retention or not history.is_promised(p) or p in history.destroyed:
        return None
    start = event.log_start if isinstance(event, Polled) else event.end
    allowed = history.deleted_before.get(p, 0)
    if start <= allowed:
        return None
    who = f"node {event.follower or event.leader}" if isinstance(event, Polled) else f"node {event.node}"
    return f"{p}: the log of {who} starts at {start}; records were to be deleted before {allowed}"


def records_of_earlier_topics_do_not_return(history: TierHistory, event: Polled) -> str | None:
    """A topic that was created again has no record that was acknowledged before; batches sent twice do not count."""
    recreation, facts = history.recreations.get(event.partition.topic), history.topics.get(event.partition.topic)
    if recreation is None or facts is None or facts.is_gone:
        return None
    for offset, value in event.records:
        send = history.sends.get(value)
        if send is not None and send.attempts == 1 and 0 <= send.acknowledged_s < recreation.asked_s:
            return f"{event.partition}: {event.consumer} reads {value!r} of an earlier topic of that name at {offset}"
    return None


def deleted_records_stay_deleted(history: TierHistory, event: Polled) -> str | None:
    """Once a deletion of records is acknowledged, no leader has them again.

    A crash may bring them back, as in Kafka: the log start goes to its checkpoint only now and then. So only leaders
    are judged whose process was in the ISR then.
    """
    p = event.partition
    deleted = history.deletions.get(p)
    if deleted is None or event.follower is not None or event.asked_s < deleted.at_s:
        return None
    is_same_process = deleted.runs.get(event.leader) == history.runs.get(BrokerId(event.leader), 0)
    if not is_same_process or not history.is_promised(p) or not history.is_untouched(p):
        return None
    if event.log_start < deleted.offset:
        return (
            f"{p}: leader {event.leader} has a log that starts at {event.log_start}; the records before"
            f" {deleted.offset} were deleted"
        )
    return None
