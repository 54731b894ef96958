"""The table of invariants: complete, each with a name and a sentence; who looks into a controller's memory."""

import ast
from pathlib import Path

from klamm.sim import history, invariants
from klamm.sim.history.trace import StateWritten
from klamm.sim.invariants.table import ALWAYS, AT_REST, by_event


def test_the_numbers_of_the_simulations_invariants_have_no_gap_below_46() -> None:
    numbers = {row.number for row in (*ALWAYS, *AT_REST)}

    assert set(range(46)) <= numbers  # 46 is that those at rest hold for a part of the nodes
    assert 46 not in numbers


def test_names_of_the_simulations_invariants_are_unique_and_descriptions_end_with_a_period() -> None:
    rows = (*ALWAYS, *AT_REST)

    assert len({row.name for row in rows}) == len(rows)
    assert all(row.sentence.endswith(".") for row in rows)


def test_each_invariant_is_checked_only_for_its_declared_event_types() -> None:
    asked = by_event()

    assert "leader_is_in_sync" in [name for name, _ in asked[StateWritten]]
    assert sum(map(len, asked.values())) == sum(len(row.sees) for row in ALWAYS)
    assert all(row.sees for row in ALWAYS)
    assert not any(row.sees for row in AT_REST)


CONTROLLER_MEMORY = {"memory", "context", "controller", "channels", "queue_size", "batch"}
"""Attributes through which one comes to what a controller remembers."""


def test_only_invariants_about_controller_memory_read_the_controllers_memory() -> None:
    rooms = [Path(package.__file__ or "").parent for package in (history, invariants)]
    modules = [
        p for room in rooms for p in room.glob("*.py") if p.name not in ("memory.py", "contexts.py", "indexes.py")
    ]

    looks_inside = {
        f"{module.name}:{node.lineno} .{node.attr}"
        for module in modules
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in CONTROLLER_MEMORY
    }

    assert looks_inside == set()
