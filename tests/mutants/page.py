"""The generated section of docs/mutants.md: how many mutants of each room who notices, and those that nobody does."""

import tomllib
from collections.abc import Callable, Iterable, Sequence
from itertools import starmap
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
tests; the first seeds of the simulation, for up to 30 processor-seconds; the comparison with Apache Kafka's recorded
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
    lines = [*_COLUMNS]
    for room, score in scores.items():
        cells = [room, str(score.equivalent), *(_share(*score.by(k)) for k in KILLERS), _share(*score.by_any)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Survivors:" if total.survivors else "No survivors.", ""]
    for m in total.survivors:
        lines.append(
            f"- `{m.id}`, line {m.lines[0]} ({total.silent(m)})\n  - `{_code(m.before)}`\n  - `{_code(m.after)}`"
        )
    return HEADING + _INTRODUCTION + "\n".join(lines).rstrip() + "\n"


def with_others(new: str, old: str) -> str:
    """The new section, with what the old one says of rooms and killers that the new run did not ask."""
    rows, before = _rows(new), _rows(old)
    merged = {r: _merged(rows.get(r), before.get(r)) for r in ROOMS if r in rows or r in before}
    kept = [block for block in _survivors(old) if block not in _survivors(new)]
    survivors = [*_survivors(new), *kept]
    table = [*_COLUMNS, *starmap(_line, merged.items()), _line("all", _sums(merged.values()))]
    lines = [*table, "", "Survivors:" if survivors else "No survivors.", "", *survivors]
    return new[: new.index(_COLUMNS[0])] + "\n".join(lines).rstrip() + "\n"


def _merged(new: list[str] | None, old: list[str] | None) -> list[str]:
    """The new cells of a room; those of killers that were not asked, and who notices at all, are the old ones then."""
    if new is None or old is None:
        return new or old or []
    is_whole = "-" not in new or "-" in old
    cells = [was if now == "-" else now for now, was in zip(new, old, strict=True)]
    return cells if is_whole else [*cells[:-1], old[-1]]


def _rows(section_text: str) -> dict[str, list[str]]:
    """By room: the other cells of its row."""
    lines = [line.strip("| ").split(" | ") for line in section_text.splitlines() if line.startswith("| ")]
    return {room: cells for room, *cells in lines if room in ROOMS}


def _survivors(section_text: str) -> list[str]:
    """The survivors in a section, each with its two lines of code."""
    _, _, after = section_text.partition("Survivors:\n")
    return ["- `" + block.rstrip() for block in ("\n" + after).split("\n- `")[1:]]


def _line(room: str, cells: Sequence[str]) -> str:
    """The row of a room."""
    return f"| {' | '.join([room, *cells])} |"


def _sums(rows: Iterable[Sequence[str]]) -> list[str]:
    """The cells of the last row: the sum of those above it."""
    equivalent, *shares = zip(*rows, strict=True)
    return [str(sum(map(int, equivalent))), *(_sum_of_shares(column) for column in shares)]


def _sum_of_shares(column: Sequence[str]) -> str:
    """The sum of cells that each say how many of how many."""
    counts = [cell.partition(",")[0].split(" of ") for cell in column if " of " in cell]
    return _share(sum(int(killed) for killed, _ in counts), sum(int(of) for _, of in counts))


def percent(killed: int, of: int) -> float:
    return 100 * killed / of if of else 100.0


def _share(killed: int, of: int) -> str:
    return f"{killed} of {of}, {percent(killed, of):.0f} %" if of else "-"


def _code(line: str) -> str:
    return line.replace("`", "'")
