"""Members of a group as child processes, and what they have done so far."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.foreign_clients import FOREIGN_CLIENTS, JAVA, ClientProcess, command
from tests.support.group_member import COOPERATIVE

from klamm.runtime.processes import ticks

LIBRARIES = ("confluent", "kafka-python", "aiokafka")
COOPERATIVE_LIBRARIES = ("confluent-cooperative", "kafka-python-cooperative")
COOPERATIVE_JAVA = tuple(name + COOPERATIVE for name in JAVA)
TIMEOUT_S = 60.0


class Consumed(NamedTuple):
    """A record whose offset was committed."""

    partition: int
    offset: int
    value: str


class GroupMember(ClientProcess):
    """One consumer process; `library` is one of LIBRARIES or FOREIGN_CLIENTS, or a cooperative one."""

    def __init__(self, directory: Path, name: str, library: str, *arguments: str) -> None:
        if library in FOREIGN_CLIENTS:
            words = command(library, "member", *arguments)
        elif library in COOPERATIVE_JAVA:
            words = command(library.removesuffix(COOPERATIVE), "member-cooperative", *arguments)
        else:
            words = [sys.executable, "-m", "tests.support.group_member", library, *arguments]
        super().__init__(directory, name, words)
        self.library = library

    @property
    def assigned(self) -> list[int]:
        """The partitions of the newest assignment; empty before the first."""
        events = self.events("assigned")
        return events[-1]["partitions"] if events else []

    @property
    def revoked(self) -> list[int]:
        """Every partition that it had to give up so far."""
        return [partition for event in self.events("revoked") for partition in event["partitions"]]

    @property
    def consumed(self) -> list[Consumed]:
        return [Consumed(e["partition"], e["offset"], e["value"]) for e in self.events("committed")]


class Members:
    """The members of one group; all are killed at the end."""

    def __init__(self, directory: Path, bootstrap: str, group: str, topic: str) -> None:
        self._directory = directory
        self._arguments = (bootstrap, group, topic)
        self.members: list[GroupMember] = []

    def start(self, library: str, instance_id: str = "") -> GroupMember:
        name = f"member-{len(self.members)}-{library}"
        member = GroupMember(self._directory, name, library, *self._arguments, *([instance_id] if instance_id else []))
        self.members.append(member)
        return member

    @property
    def consumed(self) -> list[Consumed]:
        return [record for member in self.members for record in member.consumed]

    def wait_until(self, what: str, holds: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
        for _ in ticks(timeout_s, 0.1):
            if holds():
                return
        errors = "\n".join(f"--- {m.name}\n{m.errors}" for m in self.members)
        assigned = {m.name: m.assigned for m in self.members}
        raise AssertionError(f"gave up after {timeout_s:g} s of waiting until {what}; assigned {assigned}\n{errors}")

    def wait_until_shared(self, partitions: int, members: list[GroupMember]) -> None:
        """Wait until these members have all partitions, each of them at least one, and none twice."""

        def shared() -> bool:
            parts = [member.assigned for member in members]
            return all(parts) and sorted(p for part in parts for p in part) == list(range(partitions))

        self.wait_until(f"{[m.name for m in members]} share {partitions} partitions", shared)


@contextmanager
def group_members(directory: Path, bootstrap: str, group: str, topic: str) -> Iterator[Members]:
    directory.mkdir(parents=True, exist_ok=True)
    members = Members(directory, bootstrap, group, topic)
    try:
        yield members
    finally:
        for member in members.members:
            member.kill()
