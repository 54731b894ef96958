"""Whether Apache Kafka's choice of a group's leader is determined, as far as a script's answers tell."""

from collections.abc import Sequence


class Leadership:
    """The leader of a group, by client or instance id; None where the group had none yet or is empty."""

    def __init__(self) -> None:
        self._leader: str | None = None
        self._chosen: str | None = None
        self._joined: tuple[str, ...] = ()

    def on_join_response(self, leader: str, members: Sequence[str]) -> None:
        """Take the leader of the new generation, and its members, which only the response to the leader has."""
        if self._chosen != leader:
            self._chosen, self._joined = leader, ()
        self._joined = tuple(members) or self._joined

    def is_open(self, members: Sequence[str]) -> bool:
        """Whether more than one member may lead since the last call: Kafka takes one from a hash table.

        `members` are those of the group now. Those of the new generation count as well: their sessions may have
        expired in the same step.
        """
        chosen, joined = self._chosen, self._joined or members
        self._chosen, self._joined = None, ()
        if self._leader is None:
            self._leader = chosen
            return False
        if chosen not in (None, self._leader) and _others(joined, self._leader) > 1:
            return True  # the former leader has left, or is static and did not join in time
        if self._leader not in members:
            self._leader = members[0] if members else None
            return len(members) > 1
        self._leader = chosen or self._leader
        return False


def _others(members: Sequence[str], leader: str) -> int:
    """How many of the members are not the leader."""
    return sum(member != leader for member in members)
