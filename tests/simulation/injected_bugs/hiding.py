"""Mutants that nobody notices, because another guard suffices."""

from typing import NamedTuple


class Hiding(NamedTuple):
    """A guard whose removal is not noticed as long as another guard is there."""

    pair: str
    """The mutant that removes both: it must be caught."""
    behind: str


HIDING = {
    "17": Hiding("17+17c", "the reassignment also resumes when the leader adds the broker to its ISR"),
    "28": Hiding("28+28a", "a session that is being closed never ends as expired"),
    "28a": Hiding("28+28a", "a stopped node does not replace a session that expires"),
    "bw": Hiding("bw+bwa", "a mirror whose server has not shown the election's zxid is not taken"),
}
"""Mutants that may survive alone."""
