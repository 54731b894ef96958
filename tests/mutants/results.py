"""Verdicts, one line of JSON each: a run that was broken off goes on where it was.

A verdict holds while nothing changed that it depends on: a kill, while the mutated function is the same; a survival,
while all that the killer runs is. Of killers that a run does not ask, survivals are also shown from earlier trees.
"""

import json
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from tests.mutants.mutations import Mutant

KillerName = Literal["unit", "simulation", "judge"]
KILLERS: tuple[KillerName, ...] = get_args(KillerName)
SURVIVED = "survived"
NOT_REACHED = "not reached"
KILLED = "killed"


class Verdict(NamedTuple):
    id: str
    after: str
    """The mutated line: another one of that id is another mutant."""
    killer: KillerName
    verdict: str
    """killed, survived, or not reached: no item of the killer runs the mutated line."""
    by: str
    """The item that failed, and why."""
    items_run: int
    changed: int
    """Schedules that ran otherwise, and broke no invariant."""
    cpu_s: float
    code: str
    """Digest of the function before the mutation."""
    tree: str
    """Digest of all that the killer runs."""

    @property
    def is_kill(self) -> bool:
        return self.verdict == KILLED


class Results:
    """Those of earlier runs, and new ones."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._verdicts: dict[tuple[str, str], Verdict] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            if line.endswith("}"):  # the last one may be cut off
                verdict = Verdict(**json.loads(line))
                self._verdicts[verdict.id, verdict.killer] = verdict

    def add(self, verdict: Verdict) -> None:
        self._verdicts[verdict.id, verdict.killer] = verdict
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(verdict._asdict()) + "\n")

    def get(self, mutant: Mutant, killer: KillerName, tree: str | None) -> Verdict | None:
        """The verdict, if it still holds for a tree of this digest; for any tree where that is None."""
        verdict = self._verdicts.get((mutant.id, killer))
        if verdict is None or (verdict.code, verdict.after) != (mutant.code, mutant.after):
            return None
        return verdict if verdict.is_kill or tree in (verdict.tree, None) else None
