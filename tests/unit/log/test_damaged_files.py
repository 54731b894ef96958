"""Flips, cuts, zeros, rubbish and missing files, one or two, of every kind, after clean and unclean shutdowns.

The node starts, nothing that was flushed disappears from an undamaged segment, nothing wrong is served.
"""

import random

import pytest
from tests.unit.log.damage import Before, build, check, draw

CASES_PER_TEST = 50


@pytest.fixture(scope="module")
def shutdowns() -> list[Before]:
    return [build(is_clean=True), build(is_clean=False)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first" in metafunc.fixturenames:
        metafunc.parametrize("first", range(0, metafunc.config.getoption("--damage-cases"), CASES_PER_TEST))


def test_damage_to_some_log_files_loses_no_flushed_records_in_other_files(
    shutdowns: list[Before], first: int, request: pytest.FixtureRequest
) -> None:
    for number in range(first, min(first + CASES_PER_TEST, request.config.getoption("--damage-cases"))):
        dice = random.Random(number)
        before = dice.choice(shutdowns)
        damages = draw(before, dice)
        try:
            check(before, damages)
        except Exception as error:
            ending = "clean" if before.is_clean else "unclean"
            what = " and ".join(f"{damage.kind} in {damage.path}" for damage in damages)
            error.add_note(f"case {number}: {what} after a shutdown that was {ending}")
            raise
