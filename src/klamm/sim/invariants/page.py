"""docs/invariants.md, drawn from the table by `make docs`."""

from collections.abc import Sequence
from typing import Final

from klamm.sim.invariants.table import ALWAYS, AT_REST, Row

_HEADING: Final = """# Invariants

What must hold in every simulated cluster. Each is a small function in `src/klamm/sim/invariants/`, stated anew and not
taken from the code it watches; [simulation.md](simulation.md) tells how to add one, [mutants.md](mutants.md) which of
the guards behind them were taken out to see them speak. Numbers are those of the rules they were drawn from, tickets
those of bugs that Apache Kafka had and they would have caught. Drawn by `make docs`.
"""
_ALWAYS: Final = "## After every event"
_AT_REST: Final = """## At rest

Asked of the nodes that are healed and had time; 46 is that all of it holds for them while others stay broken."""
_COLUMNS: Final = "| # | name | what must hold | sees | tickets |\n|---|---|---|---|---|"


def drawn() -> str:
    parts = (_HEADING, _ALWAYS, _table(ALWAYS), _AT_REST, _table(AT_REST))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _table(rows: Sequence[Row]) -> str:
    return "\n".join([_COLUMNS, *map(_row, sorted(rows, key=lambda row: row.number))])


def _row(row: Row) -> str:
    module = row.check.__module__.rpartition(".")[2]
    sees = ", ".join(kind.__name__ for kind in row.sees) or "the cluster"
    return f"| {row.number} | `{module}.{row.name}` | {row.sentence} | {sees} | {row.tickets} |"
