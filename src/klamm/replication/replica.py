"""A leader's knowledge of one follower. Source: Replica.scala."""

import math

from klamm.model.ids import BrokerId

NEVER = -math.inf
UNKNOWN_OFFSET = -1
NO_BROKER_EPOCH = -1
"""In place of a broker epoch that is not known, or not to be compared."""


class RemoteReplica:
    """A follower's progress, learnt from its fetches. Times are the event loop's, in milliseconds."""

    __slots__ = (
        "awaits_fetch",
        "broker_epoch",
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: BrokerId) -> None:
        self.broker_id = broker_id
        self.broker_epoch = NO_BROKER_EPOCH
        """The registration of the follower that fetched last: after a restart its log may be shorter."""
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end = UNKNOWN_OFFSET
        self.last_fetch_ms = NEVER
        self.last_caught_up_ms = NEVER
        self.awaits_fetch = False
        """Whether the follower has yet to fetch in this leader epoch."""

    def record_fetch(self, offset: int, log_start_offset: int, leader_end: int, now_ms: float) -> None:
        """Record a fetch from `offset`, made when the leader's log ended at `leader_end`.

        A follower that fetches from the log end of its previous fetch was caught up at that time.
        """
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = offset
        self.last_fetch_leader_end = max(leader_end, self.last_fetch_leader_end)
        self.last_fetch_ms = now_ms
        self.awaits_fetch = False

    def record_implicit_fetch(self, leader_end: int, at_ms: float) -> None:
        """Count an incremental fetch at `at_ms` without this partition as a fetch from the log end `leader_end`."""
        if self.log_end_offset == leader_end and at_ms > self.last_fetch_ms:
            self.last_caught_up_ms = max(self.last_caught_up_ms, at_ms)
            self.last_fetch_leader_end = leader_end
            self.last_fetch_ms = at_ms

    def reset(self, *, in_isr: bool, was_leader: bool, epoch_start_offset: int, now_ms: float) -> None:
        """Reset the follower's progress in a new leader epoch; `was_leader`: this broker also led the previous epoch.

        An ISR member counts as caught up now, so that the whole lag time remains until it must fetch.
        """
        caught_up_ms = now_ms if in_isr else NEVER
        if was_leader:
            self.last_fetch_leader_end = epoch_start_offset
            self.last_fetch_ms = caught_up_ms
        else:
            self.log_start_offset = UNKNOWN_OFFSET
            self.log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_end = UNKNOWN_OFFSET
            self.last_fetch_ms = NEVER
        self.last_caught_up_ms = caught_up_ms
        self.awaits_fetch = True

    def is_caught_up(self, leader_end: int, now_ms: float, lag_time_max_ms: int) -> bool:
        """Whether the follower reached the leader's log end within the lag time."""
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_time_max_ms
