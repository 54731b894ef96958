"""The manual has every fault, and its example of a new one works."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from klamm.sim.cluster import run_script
from klamm.sim.faults import aim, table
from klamm.sim.faults.table import FAULTS, ROWS, drawn
from klamm.sim.options import Options
from klamm.sim.script import Happening, Script
from klamm.sim.stage import Draw, Stage, later, restart

PAGE = (Path(__file__).parents[4] / "docs" / "simulation.md").read_text()


def test_the_manual_has_the_table_of_faults() -> None:
    _, _, rest = PAGE.partition("<!-- the table of faults: drawn from sim/faults/table.py -->\n")

    assert rest.partition("<!-- end of the table -->")[0] == drawn()


def test_no_name_is_there_twice() -> None:
    assert len(FAULTS) == len(ROWS)


def test_the_manuals_example_takes_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = {"Stage": Stage, "Draw": Draw, "later": later, "restart": restart, "victim": aim.victim, "Row": table.Row}
    exec(code, names)
    row = names["ROW"]
    assert isinstance(row, table.Row)
    monkeypatch.setitem(FAULTS, row.name, row.happen)
    options = replace(
        Options.plain(3, nodes=3), servers=1, session_timeout_ms=6_000, pause_s=1, work=0, faults=(row.name,), verbs=()
    )

    outcome = run_script(Script(options, [Happening(5.0, "create topic"), Happening(10.0, row.name)], 20.0), tell=True)

    assert outcome.violation is None
    assert any(row.sign in line for line in outcome.story)
    [number] = {line.split("node ")[1].split()[0] for line in outcome.story if row.sign in line}
    assert sum(f"node {number} starts" in line for line in outcome.story) == 3
