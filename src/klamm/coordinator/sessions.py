"""Members' sessions: who is silent for too long leaves the group. Source: DelayedHeartbeat.scala (3.9).

A heartbeat only moves a deadline. The timer looks at the deadline when it fires, so a member has one timer for each
session timeout, not one for each heartbeat.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from klamm.coordinator.group import Group
from klamm.coordinator.member import Member
from klamm.coordinator.states import DEAD

NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long a new member may wait for its first rebalance, during which it sends no heartbeats (KAFKA-9752)."""
_RESOLUTION_S: Final = 0.001


def _ignore(group: Group, member_id: str) -> None:
    """Do nothing: the default without a listener for expired members."""


class Sessions:
    def __init__(self) -> None:
        self.on_expired: Callable[[Group, str], None] = _ignore
        """Called with a member whose session expired; it is still in the group."""
        self.on_pending_expired: Callable[[Group, str], None] = _ignore
        """Called with a member id that was given out and not used in time."""

    def restart(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """Extend the member's session: it expires after `timeout_ms`, by default its session timeout."""
        loop = asyncio.get_running_loop()
        timeout = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.session_deadline = loop.time() + timeout / 1000
        if member.session_timer is not None:
            if member.session_timer_at <= member.session_deadline:
                return
            member.session_timer.cancel()
        self._set_timer(loop, group, member)

    def silence_ms(self, member: Member) -> int:
        """How long the member has sent nothing that extends its session."""
        left_s = member.session_deadline - asyncio.get_running_loop().time()
        return round(member.session_timeout_ms - left_s * 1000)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, group: Group, member: Member) -> None:
        """Start the timer of the member's session for its current deadline."""
        member.session_timer_at = member.session_deadline
        member.session_timer = loop.call_at(member.session_deadline, self._on_timer, group, member)

    def _on_timer(self, group: Group, member: Member) -> None:
        """Report the member as expired if its deadline has passed; else start the timer for the later deadline."""
        member.session_timer = None
        loop = asyncio.get_running_loop()
        if loop.time() + _RESOLUTION_S < member.session_deadline:
            self._set_timer(loop, group, member)
        elif group.state is not DEAD and group.members.get(member.member_id) is member and member.may_expire:
            self.on_expired(group, member.member_id)

    def await_pending(self, group: Group, member_id: str, timeout_ms: int) -> None:
        """Keep a member id for a client that is about to join, until the timeout; rebalances wait for it."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(timeout_ms / 1000, self._on_pending_timer, group, member_id)
        group.pending_members[member_id] = timer

    def _on_pending_timer(self, group: Group, member_id: str) -> None:
        """Have a member id removed that was given to a client and not used in time, unless the group is dead."""
        if group.state is not DEAD:
            self.on_pending_expired(group, member_id)
