"""Verdicts on disk, which of them still hold, and the page that is made of them."""

from pathlib import Path

import pytest
from tests.mutants.mutations import Mutant, mutants_of
from tests.mutants.page import HEADING, equivalents, section, section_of, with_others, write_section
from tests.mutants.results import KILLED, NOT_REACHED, SURVIVED, KillerName, Results, Verdict

FIRST, SECOND, THIRD = mutants_of("controller/decisions/elections.py")[:3]


def verdict(mutant: Mutant, killer: KillerName, what: str) -> Verdict:
    by = "seed 3" if what == KILLED else ""
    return Verdict(mutant.id, mutant.after, killer, what, by, 1, 0, 0.5, code=mutant.code, tree="same")


def known(*verdicts: Verdict) -> dict[tuple[str, str], Verdict]:
    return {(v.id, v.killer): v for v in verdicts}


def test_a_mutant_run_continues_with_the_results_of_an_interrupted_run(tmp_path: Path) -> None:
    path = tmp_path / "a" / "verdicts"
    Results(path).add(verdict(FIRST, "unit", KILLED))
    Results(path).add(verdict(SECOND, "unit", SURVIVED))
    with path.open("a") as file:
        file.write('{"id": "cut o')

    results = Results(path)

    assert results.get(FIRST, "unit", "same") == verdict(FIRST, "unit", KILLED)
    assert results.get(SECOND, "unit", "same") == verdict(SECOND, "unit", SURVIVED)
    assert results.get(FIRST, "simulation", "same") is None
    assert results.get(FIRST._replace(after="another line"), "unit", "same") is None


@pytest.mark.parametrize(
    ("what", "is_same", "tests", "holds"),
    [
        (KILLED, True, "new", True),
        (KILLED, False, "same", False),
        (SURVIVED, True, "new", False),
        (SURVIVED, False, "same", False),
        (SURVIVED, True, "same", True),
        (SURVIVED, True, None, True),  # its killer is not asked in this run
        (NOT_REACHED, True, "new", False),
    ],
)
def test_a_stored_mutant_result_is_reused_while_the_code_under_test_is_unchanged(
    tmp_path: Path, what: str, is_same: bool, tests: str | None, holds: bool
) -> None:
    results = Results(tmp_path / "verdicts")
    results.add(verdict(FIRST, "unit", what))

    mutant = FIRST if is_same else FIRST._replace(code="another function")
    assert (results.get(mutant, "unit", tests) is not None) is holds


def test_the_mutants_page_counts_each_test_kind_and_lists_survivors_with_lines() -> None:
    verdicts = known(
        verdict(FIRST, "unit", KILLED),
        verdict(FIRST, "simulation", SURVIVED),
        verdict(SECOND, "unit", SURVIVED),
        verdict(SECOND, "simulation", NOT_REACHED),
        verdict(THIRD, "unit", SURVIVED),
    )

    text = section([FIRST, SECOND, THIRD], lambda m, k: verdicts.get((m.id, k)), {(THIRD.id, THIRD.after): "why"})

    assert "| controller | 1 | 1 of 2, 50 % | 0 of 2, 0 % | - | 1 of 2, 50 % |" in text
    assert f"- `{SECOND.id}`, line {SECOND.lines[0]} (unit survived, simulation not reached)" in text
    assert f"  - `{SECOND.before}`\n  - `{SECOND.after}`" in text
    assert FIRST.id not in text
    assert THIRD.id not in text


def test_the_recorded_reason_for_a_surviving_mutant_applies_only_while_its_line_is_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "equivalent.toml"
    path.write_text(f"[[mutant]]\nid = '{FIRST.id}'\nafter = 'another line'\nreason = 'why'\n")

    text = section([FIRST], lambda m, k: verdict(m, k, SURVIVED), equivalents(path))

    assert FIRST.id in text


def test_writing_the_mutants_section_keeps_the_rest_of_the_documentation_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Mutants\n\nguards\n")

    write_section(f"{HEADING}\nold\n", page)
    write_section(f"{HEADING}\nnew\n", page)

    assert page.read_text() == f"# Mutants\n\nguards\n{HEADING}\nnew\n"
    assert section_of("# Mutants\n") == ""


def test_every_mutant_listed_as_equivalent_has_a_reason() -> None:
    assert all(len(reason) > 10 for reason in equivalents().values())


def page_section(*lines: str) -> str:
    heading = (
        "| room | equivalent | unit alone | simulation alone | judge alone | by any |",
        "|---|---|---|---|---|---|",
    )
    return f"{HEADING}\nwhat it is\n\n" + "\n".join([*heading, *lines]) + "\n"


def test_a_section_keeps_what_the_last_one_said_of_rooms_and_killers_that_were_not_asked() -> None:
    old = page_section(
        "| controller | 8 | 9 of 10, 90 % | 1 of 4, 25 % | 2 of 4, 50 % | 9 of 10, 90 % |",
        "| log | 3 | 4 of 5, 80 % | - | - | 4 of 5, 80 % |",
        "| all | 11 | 13 of 15, 87 % | 1 of 4, 25 % | 2 of 4, 50 % | 13 of 15, 87 % |",
        "", "Survivors:", "", "- `log/a.py:guard-removed:f:1`, line 1 (unit survived)", "  - `a`", "  - `b`",
    )  # fmt: skip
    new = page_section("| controller | 2 | - | 3 of 4, 75 % | - | 3 of 4, 75 % |", "", "No survivors.")

    text = with_others(new, old)

    assert "| controller | 2 | 9 of 10, 90 % | 3 of 4, 75 % | 2 of 4, 50 % | 9 of 10, 90 % |" in text
    assert "| log | 3 | 4 of 5, 80 % | - | - | 4 of 5, 80 % |" in text
    assert "| all | 5 | 13 of 15, 87 % | 3 of 4, 75 % | 2 of 4, 50 % | 13 of 15, 87 % |" in text
    assert text.endswith("Survivors:\n\n- `log/a.py:guard-removed:f:1`, line 1 (unit survived)\n  - `a`\n  - `b`\n")
    assert with_others(text, old) == text
