"""Generated scripts: shortened, printed, kept."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.differential import recordings
from tests.differential.arena import kind_of
from tests.differential.calls import Call, as_text, keep, read_calls
from tests.differential.generator import shorten
from tests.differential.recordings import GENERATED
from tests.differential.transcript import Difference

CALLS = [Call("kill", [n]) for n in range(20)]


def test_shortening_a_differential_script_removes_calls_not_needed_for_the_difference() -> None:
    played = []

    def differs(calls: Sequence[Call]) -> bool:
        played.append(calls)
        return CALLS[3] in calls and CALLS[17] in calls

    assert shorten(CALLS, differs) == [CALLS[3], CALLS[17]]
    assert len(played) < 60


def test_a_generated_differential_script_is_printed_as_python_code() -> None:
    calls = [Call("create_topic", ["a", [[1, 2]]]), Call("leader_asks", ["a", [1], 0], {"version": 2})]

    assert as_text("two_steps", calls) == (
        "@script(1, 2, 3, 4)\n"
        "async def two_steps(s: ScriptContext) -> None:\n"
        "    await s.create_topic('a', [[1, 2]])\n"
        "    await s.leader_asks('a', [1], 0, version=2)"
    )


def test_a_saved_differential_script_makes_the_same_calls_when_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "RECORDED", tmp_path)
    recordings._sections.cache_clear()
    calls = [Call("reassign", [{("a", 0): [1, 2], ("b", 1): None}]), Call("elect", [0, [["a", 0]]], {"timeout_ms": 1})]

    keep("a_life", calls, [{"did": "nothing"}])
    recordings.save(GENERATED)
    recordings._sections.cache_clear()

    assert read_calls("a_life") == calls
    assert recordings.read(GENERATED, "a_life").steps == [{"did": "nothing"}]
    assert (tmp_path / "generated.txt").read_text().startswith("a_life: 2 calls, 3 lines, ")
    recordings._sections.cache_clear()


def test_differences_that_vary_only_in_broker_and_partition_numbers_are_of_one_kind() -> None:
    one = Difference(7, "ask to reassign a-0 to [1]", "requests 3 a-0", None, [])
    other = Difference(2, "ask to reassign a-1 to [4, 2]", "requests 1 a-1", [], None)

    assert kind_of(one) == kind_of(other)
    assert kind_of(one) != kind_of(one._replace(place="answer a-0"))
