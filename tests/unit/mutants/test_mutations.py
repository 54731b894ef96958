"""Ids, samples and the import hook."""

import pytest
from tests.mutants.hunt import sampled
from tests.mutants.mutations import ROOMS, Mutant, all_mutants, files_of, mutants_of, mutated_tree
from tests.mutants.mutations import _numbered as numbered

ELECTIONS = "controller/decisions/elections.py"
SOURCE = "def a(b):\n    return b < 1 or b > 2\n"
OTHER = "def other(x):\n    if x == 1:\n        return 5\n    return x\n\n\n"


def ids(source: str) -> list[str]:
    return [m.id for m, _ in numbered("log/some.py", source)]


def test_mutant_ids_are_unique_and_the_same_in_each_run() -> None:
    first = [m.id for m in mutants_of(ELECTIONS)]

    assert first == [m.id for m in mutants_of(ELECTIONS)]
    assert len(first) == len(set(first)) > 50


def test_the_ids_of_mutants_stay_the_same_when_other_functions_change() -> None:
    assert set(ids(SOURCE)) < set(ids(OTHER + SOURCE))
    assert "log/some.py:comparison-shifted:a:2" in ids(OTHER + SOURCE)


def test_the_description_of_a_mutant_has_its_line_and_its_change() -> None:
    found = {m.id: m for m, _ in numbered("log/some.py", OTHER + SOURCE)}

    mutant = found["log/some.py:comparison-shifted:a:2"]

    assert (mutant.lines, mutant.before, mutant.after) == ((8, 8), "b > 2", "b >= 2")
    assert (mutant.room, mutant.module) == ("log", "klamm.log.some")


def test_changing_docstrings_comments_or_other_functions_does_not_change_a_mutants_fingerprint() -> None:
    documented = SOURCE.replace("(b):", '(b):  # why\n    """What."""')
    changed = SOURCE.replace("> 2", "> 3")

    codes = [{m.code for m, _ in numbered("log/some.py", s) if m.function == "a"} for s in (SOURCE, OTHER + documented)]

    assert codes[0] == codes[1]
    assert codes[0].isdisjoint(m.code for m, _ in numbered("log/some.py", changed))


def test_requesting_an_unknown_mutant_id_raises_an_error() -> None:
    with pytest.raises(KeyError, match="nothing"):
        mutated_tree("log/some.py", SOURCE, "nothing")


def test_applying_a_mutant_changes_no_file_and_no_earlier_syntax_tree() -> None:
    mutant = mutants_of(ELECTIONS)[0]
    before = mutant.path.read_text()

    mutated_tree(ELECTIONS, before, mutant.id)

    assert mutant.path.read_text() == before
    assert mutants_of(ELECTIONS)[0] == mutant


def test_a_sample_of_mutants_takes_the_same_number_from_each_package() -> None:
    everything = [m for room in ("net", "zk") for m in all_mutants((room,))]

    small, large = sampled(everything, 20, seed=7), sampled(everything, 50, seed=7)

    assert [m.room for m in small] == ["net", "zk"] * 10
    assert large[:20] == small
    assert small != sampled(everything, 20, seed=8)


@pytest.mark.parametrize("room", ROOMS)
def test_every_package_of_klamm_has_mutants(room: str) -> None:
    of_files = (mutants_of(file) for file in files_of((room,)))
    mutants: list[Mutant] = next(found for found in of_files if found)

    assert {m.room for m in mutants} == {room}
