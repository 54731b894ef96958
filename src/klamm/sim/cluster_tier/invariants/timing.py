"""How long answers take in a sound cluster. Time is virtual there: what is late was forgotten, and found by a timer.

These rules begin some time after all is healed, and leave out what a change of the partition's state may delay.
"""

from typing import Final

from klamm.model.ids import TopicPartition
from klamm.sim.cluster_tier.history import ACKS_ALL, TierHistory
from klamm.sim.cluster_tier.trace import Acknowledged, Polled

_PROMPT_S: Final = 0.15
"""Several round trips between machines, and what is synced on each; less than any wait of a fetch."""
_SETTLING_S: Final = 2.0
"""After a change of leader or ISR: replicas learn of it, and followers fetch from the new leader."""


def acknowledgements_are_prompt(history: TierHistory, event: Acknowledged) -> str | None:
    """A batch is acknowledged with acks=all as soon as the ISR has it, at the first attempt."""
    send = event.send
    p = send.partition
    if send.acks != ACKS_ALL or not _is_sound(history, p, send.began_s):
        return None
    took_s = send.acknowledged_s - send.began_s
    if took_s <= _PROMPT_S:
        return None
    return f"{p}: {send.producer} waited {took_s:.3f} s for acks=all in attempt {send.attempts}; ISR {history.isr(p)}"


def polls_are_answered_in_time(history: TierHistory, event: Polled) -> str | None:
    """A fetch of a consumer is answered when its wait is over, or as soon as there are records for it."""
    p = event.partition
    if not _is_sound(history, p, event.asked_s):
        return None
    took_s = event.answered_s - event.asked_s
    if took_s > event.wait_s + _PROMPT_S:
        return f"{p}: {event.consumer} waited {took_s:.3f} s for an answer, instead of {event.wait_s} s at most"
    known_s = _known_since(history, event)
    if event.follower is not None or event.aborted is not None or known_s is None:
        return None
    late_s = event.answered_s - max(known_s, event.asked_s)
    if late_s <= _PROMPT_S:
        return None
    what = "gets" if event.records else "does not get"
    return f"{p}: {event.consumer} {what} offset {event.position} {late_s:.3f} s after it was acknowledged"


def _known_since(history: TierHistory, event: Polled) -> float | None:
    """When the record at the position was acknowledged with acks=all; None where it was not, or may be lost."""
    if event.position >= history.promised_end(event.partition):
        return None
    value = history.committed.get(event.partition, {}).get(event.position)
    send = history.sends.get(value) if value is not None else None
    return send.acknowledged_s if send is not None and send.acknowledged_s >= 0 and send.acks == ACKS_ALL else None


def _is_sound(history: TierHistory, p: TopicPartition, since_s: float) -> bool:
    """Whether nothing has disturbed this partition from a while before this time until now."""
    facts = history.topics.get(p.topic)
    if facts is None or facts.is_gone or p in history.destroyed:
        return False
    return since_s >= max(history.sound_since_s, history.changed_s.get(p, 0.0) + _SETTLING_S)
