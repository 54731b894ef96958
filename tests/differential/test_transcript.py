"""Recorded steps as text, and back."""

from typing import Any

from tests.differential.transcript import (
    Difference,
    differences_to_lines,
    lines_to_differences,
    lines_to_steps,
    own_first_step,
    sections_to_text,
    share_first_steps,
    steps_to_lines,
    text_to_sections,
)

STATE = "/brokers/topics/a/partitions/0/state"
STEPS: list[dict[str, Any]] = [
    {
        "did": "kill 1",
        "tree": {"/brokers/ids/1": None, STATE: '{"leader":2} v1'},
        "writes": {STATE: ["create null", 'set {"leader":2}']},
        "order": {"a": ["set topic", "set state"]},
        "refused": ["BAD_VERSION of the first"],
        "requests": {"2": {"a-0": ["first", "second"]}, "3": {"a-0": ["first"]}, "4": {"a-0": ["first", "second"]}},
    },
    {"did": "ends with a space ", "answer": {"a-0": "ok", "": "error 3"}},
    {"did": "ask", "answer": ["a-0", "a-1"]},
    {"did": "ask", "answer": {}},
    {"did": "ask", "answer": []},
    {"did": "ask", "answer": "two\nlines"},
]


def test_steps_of_a_recorded_run_are_unchanged_after_a_write_to_text_and_a_read() -> None:
    assert lines_to_steps(steps_to_lines(STEPS)) == STEPS


def test_the_text_of_a_recorded_run_lists_brokers_with_equal_requests_together() -> None:
    assert steps_to_lines(STEPS[:1])[-5:] == [
        "  to 2 4",
        "    a-0: first",
        "    a-0: second",
        "  to 3",
        "    a-0: first",
    ]


def test_the_text_of_recorded_runs_writes_a_shared_first_step_only_once() -> None:
    lines = {"one": steps_to_lines(STEPS), "two": steps_to_lines(STEPS[:1]), "three": steps_to_lines(STEPS[1:])}

    sections = text_to_sections(sections_to_text(share_first_steps(lines)))

    assert sections["two"] == ["* kill 1", "  as in one"]
    assert {name: own_first_step(name, sections) for name in sections} == lines


def test_expected_differences_are_unchanged_after_writing_and_reading_text() -> None:
    differences = [
        Difference(2, "kill 1", "requests 2 a-0", ["first", "second"], None),
        Difference(2, "kill 1", f"tree {STATE}", None, '{"leader":2} v1'),
        Difference(3, "ask", "answer", "error 3", "ok"),
    ]

    assert lines_to_differences(differences_to_lines(differences)) == differences
