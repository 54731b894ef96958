"""The generated section of docs/mutants.md: how many mutants of each room who notices, and those that nobody does."""

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.mutants.mutations import ROOMS, Mutant
from tests.mutants.results import KILLERS, KillerName, Verdict

PAGE: Final = Path(__file__).parents[2] / "docs" / "mutants.md"
HEADING: Final = "\n## Generated mutants\n"
EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")
_INTRODUCTION: Final = """
Small changes of the sources, made one at a time by `make mutation-score` (`tests/mutants/`): a guard removed, two
steps swapped, a comparison shifted, and so on. A sample drawn by a seed is shown to three killers, each alone: the unit
tests; the first seeds of the simulation, for 30 processor-seconds; the comparison with Apache Kafka's recorded
controller, for 20. A column has the mutants that this killer noticed, of those that it was asked about: the unit tests
about all, the others about a part. Mutants of `controller/` and `zk/` meet the tier of the simulation with stub
brokers, all others the tier of whole nodes. Equivalent mutants, which change nothing that anybody could notice, are
listed with reasons in `tests/mutants/equivalent.toml`, and do not count.

"""
_COLUMNS: Final = (
    "| room | equivalent | unit alone | simulation alone | judge alone | by any |",
    "|---|---|---|---|---|---|",
)
Known = Callable[[Mutant, KillerName], Verdict | None]


def section_of(text: str) -> str:
    """The generated section of a page's text, with its heading; empty where there is none."""
    return text[text.index(HEADING) :] if HEADING in text else ""


def write_section(section: str, page: Path = PAGE) -> None:
    text = page.read_text()
    page.write_text(text.removesuffix(section_of(text)) + section)


def equivalents(path: Path = EQUIVALENT) -> dict[tuple[str, str], str]:
    """Reasons, by id and mutated line: an id whose line has changed is another mutant."""
    return {(each["id"], each["after"]): each["reason"] for each in tomllib.loads(path.read_text())["mutant"]}


def is_equivalent(mutant: Mutant, known: dict[tuple[str, str], str]) -> bool:
    return (mutant.id, mutant.after) in known


class Score:
    """Counts over the mutants of a room that are not equivalent, and have verdicts."""

    def __init__(self, mutants: Sequence[Mutant], known: Known, reasons: dict[tuple[str, str], str]) -> None:
        verdicts = {m: [v for k in KILLERS if (v := known(m, k))] for m in mutants}
        seen = [m for m in mutants if verdicts[m]]
        self.equivalent = sum(is_equivalent(m, reasons) for m in seen)
        self.counted = [m for m in seen if not is_equivalent(m, reasons)]
        self._verdicts = verdicts
        self.survivors = [m for m in self.counted if not any(v.is_kill for v in verdicts[m])]

    def by(self, killer: KillerName) -> tuple[int, int]:
        """How many this killer noticed, and how many it was asked about."""
        answers = [v for m in self.counted for v in self._verdicts[m] if v.killer == killer]
        return sum(v.is_kill for v in answers), len(answers)

    @property
    def by_any(self) -> tuple[int, int]:
        return len(self.counted) - len(self.survivors), len(self.counted)

    def silent(self, mutant: Mutant) -> str:
        """Who was asked, and did not notice."""
        return ", ".join(f"{v.killer} {v.verdict}" for v in self._verdicts[mutant])


def section(mutants: Sequence[Mutant], known: Known, reasons: dict[tuple[str, str], str]) -> str:
    rooms = [room for room in ROOMS if any(m.room == room for m in mutants)]
    scores = {room: Score([m for m in mutants if m.room == room], known, reasons) for room in rooms}
    scores["all"] = total = Score(mutants, known, reasons)
    lines = [
        "| room | equivalent | unit alone | simulation alone | judge alone | by any |",
        "|---|---|---|---|---|---|",
    ]
    for room, score in scores.items():
        cells = [room, str(score.equivalent), *(_share(*score.by(k)) for k in KILLERS), _share(*score.by_any)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Survivors:" if total.survivors else "No survivors.", ""]
    for m in total.survivors:
        lines.append(
            f"- `{m.id}`, line {m.lines[0]} ({total.silent(m)})\n  - `{_code(m.before)}`\n  - `{_code(m.after)}`"
        )
    return HEADING + _INTRODUCTION + "\n".join(lines).rstrip() + "\n"


def percent(killed: int, of: int) -> float:
    return 100 * killed / of if of else 100.0


def _share(killed: int, of: int) -> str:
    return f"{killed} of {of}, {percent(killed, of):.0f} %" if of else "-"


def _code(line: str) -> str:
    return line.replace("`", "'")
