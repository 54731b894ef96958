"""`make prove` names test files and Make targets that exist."""

import re
from pathlib import Path

import pytest
from tests.prove import STEPS, Step

ROOT = Path(__file__).parents[2]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_each_step_of_make_prove_names_existing_files_and_make_targets(step: Step) -> None:
    paths = [word for word in step.command if word.startswith("tests/")]

    assert [path for path in paths if not (ROOT / path).exists()] == []
    if step.command[0] == "make":
        assert step.command[2] in TARGETS
    else:
        modules = [word for word in step.command if word.startswith("tests.")]
        assert all((ROOT / module.replace(".", "/")).with_suffix(".py").exists() for module in modules)
        assert paths or modules
