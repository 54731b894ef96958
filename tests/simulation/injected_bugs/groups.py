"""Mutants that each remove a guard of consumer groups; the simulated clusters of whole nodes must notice them."""

from typing import Any, Final

from tests.simulation.injected_bugs.mutant import Mutant, Patch

from klamm.coordinator.decisions import members
from klamm.coordinator.handlers import rebalance
from klamm.coordinator.handlers.ownership import Ownership
from klamm.coordinator.replicated_log import ReplicatedLog
from klamm.coordinator.sessions import Sessions
from klamm.model.errors import ErrorCode


def groups_not_loaded(patch: Patch) -> None:
    """A new coordinator does not read the committed offsets that its predecessor stored."""

    async def load(self: Ownership, number: int, loading: Any) -> int:
        return 0

    patch.setattr(Ownership, "load", load)


def generations_not_checked(patch: Patch) -> None:
    """A member that did not join the current generation is served all the same."""

    def check(group: Any, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        return members.check_member(group, member_id, instance_id)

    patch.setattr(members, "check_generation", check)


def everyone_gets_everything(patch: Patch) -> None:
    """Each member gets the longest of all assignments."""
    set_assignment = rebalance.set_assignment

    def of_all(context: Any, group: Any, assignments: dict[str, bytes]) -> None:
        longest = max(assignments.values(), key=len, default=b"")
        set_assignment(context, group, dict.fromkeys(assignments, longest))

    patch.setattr(rebalance, "set_assignment", of_all)


def silent_members_stay(patch: Patch) -> None:
    """The session of a member that sends nothing any more never expires."""
    patch.setattr(Sessions, "_on_timer", lambda self, group, member: None)


def reads_without_proof(patch: Patch) -> None:
    """A coordinator answers from memory although another broker may be leader, as Apache Kafka's does."""

    async def confirm(self: ReplicatedLog, partition: int) -> bool:
        return True

    patch.setattr(ReplicatedLog, "confirm_leadership", confirm)


MUTANTS: Final = (
    Mutant("g", "", "a new coordinator does not load its groups", groups_not_loaded, (57,)),
    Mutant("g1", "", "the generation of a member is not checked", generations_not_checked, (57,)),
    Mutant("g2", "", "silent members stay in the group", silent_members_stay, (57,)),
    Mutant("g3", "", "two members get the same partitions", everyone_gets_everything, (57,)),
    Mutant("g4", "", "replaced coordinators tell old committed offsets", reads_without_proof, (57,)),
)
