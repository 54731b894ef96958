"""One member of a group, and which of the members' protocols a generation uses.

Source: MemberMetadata.scala, GroupMetadata.selectProtocol (3.9).
"""

import asyncio
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import TypeVar

from klamm.coordinator.requests import JoinResult, Protocols, SyncResult

ResultT = TypeVar("ResultT")


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    instance_id: str | None
    """A static member's own name, which survives its restarts (KIP-345)."""
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """Until its first join completes."""
    join_reply: "asyncio.Future[JoinResult] | None" = None
    """Of the JoinGroup that waits for the rebalance."""
    sync_reply: "asyncio.Future[SyncResult] | None" = None
    """Of the SyncGroup that waits for the leader's assignment."""
    session_deadline: float = 0.0
    """The loop's time at which the session expires."""
    session_timer: asyncio.TimerHandle | None = None
    session_timer_at: float = 0.0

    @property
    def is_static(self) -> bool:
        """Whether the member has a `group.instance.id`."""
        return self.instance_id is not None

    @property
    def awaits_join(self) -> bool:
        """Whether a JoinGroup request of the member waits for its response."""
        return self.join_reply is not None

    @property
    def awaits_sync(self) -> bool:
        """Whether a SyncGroup request of the member waits for its response."""
        return self.sync_reply is not None

    @property
    def may_expire(self) -> bool:
        """Whether the member's session may expire.

        A member that waits for a response sends no heartbeats, so its session stays; a new member may have left.
        """
        return self.is_new or not (self.awaits_join or self.awaits_sync)

    def metadata(self, protocol: str) -> bytes:
        """The member's metadata for a protocol that it supports."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(protocol)

    def answer_sync(self, result: SyncResult) -> bool:
        """Answer the member's waiting SyncGroup request; False where none waits."""
        reply, self.sync_reply = self.sync_reply, None
        return answer(reply, result)

    def stop_session_timer(self) -> None:
        """Cancel the timer of the member's session."""
        if self.session_timer is not None:
            self.session_timer.cancel()
            self.session_timer = None


def answer(reply: "asyncio.Future[ResultT] | None", result: ResultT) -> bool:
    """Set the result of a waiting request; False if the request no longer waits."""
    if reply is not None and not reply.done():
        reply.set_result(result)
    return reply is not None


def select_protocol(members: Iterable[Protocols], candidates: Container[str]) -> str:
    """Choose the protocol with most votes: each member votes for its first candidate, which all members support.

    Of several with as many votes, the one whose first vote came from the earliest member. Raises ValueError where the
    members have no protocol in common; the checks at joining prevent that.
    """
    votes: Counter[str] = Counter()
    for protocols in members:
        for name, _ in protocols:
            if name in candidates:
                votes[name] += 1
                break
    if not votes:
        raise ValueError("the members have no protocol in common")
    return max(votes, key=votes.__getitem__)
