"""What members ask for, and what they are answered, whatever the version of the request."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from klamm.model.errors import ErrorCode

UNKNOWN_MEMBER = ""
"""The member id of whoever does not have one yet."""
NO_GENERATION = -1

Protocols = tuple[tuple[str, bytes], ...]
"""What a member supports, the preferred first: name and metadata."""


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int


class JoinRequest(NamedTuple):
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_known_member_id: bool = False
    """A new member gets its id first, and joins with it (KIP-394)."""
    can_skip_assignment: bool = False
    """The leader understands that it need not compute an assignment (KAFKA-13435)."""
    reason: str | None = None


class JoinedMember(NamedTuple):
    """A member as the leader gets it, which computes the assignment."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: Sequence[JoinedMember] = ()
    """Empty for all but the leader."""
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = {}
    """By member id; only the leader's counts."""


class SyncResult(NamedTuple):
    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class LeavingMember(NamedTuple):
    member_id: str
    instance_id: str | None = None
    reason: str | None = None
