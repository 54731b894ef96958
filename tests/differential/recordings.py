"""Recordings of what Apache Kafka did in each scenario."""

import json
import lzma
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.differential.transcript import (
    Sections,
    Steps,
    lines_to_steps,
    own_first_step,
    sections_to_text,
    share_first_steps,
    steps_to_lines,
    text_to_sections,
)

RECORDED = Path(__file__).parent / "recorded"
GENERATED = "generated"
_CALL = "call "


class Recording(NamedTuple):
    steps: Steps
    calls: Sequence[Sequence[Any]] = ()
    """Verb, arguments and options of each call, where the scenario was generated."""


def read(subject: str, name: str) -> Recording:
    """Raises KeyError where it was never recorded."""
    lines = _sections(subject)[name]
    calls = [json.loads(line.removeprefix(_CALL)) for line in lines if line.startswith(_CALL)]
    return Recording(lines_to_steps(lines[len(calls) :]), calls)


def is_recorded(subject: str, name: str) -> bool:
    """Whether there is a recording of this scenario."""
    return name in _sections(subject)


def names(subject: str) -> list[str]:
    """The recorded scenarios of a subject."""
    return sorted(_sections(subject))


def keep(subject: str, name: str, recording: Recording) -> None:
    """Store a recording in memory; `save` writes it. Raises AssertionError if its text could not be read back."""
    calls = [_CALL + json.dumps(call, ensure_ascii=False, separators=(",", ":")) for call in recording.calls]
    lines = steps_to_lines(recording.steps)
    assert lines_to_steps(lines) == recording.steps, name
    _sections(subject)[name] = calls + lines


def save(subject: str) -> None:
    """Write the recordings of a subject to its file."""
    sections = dict(sorted(_sections(subject).items()))
    RECORDED.mkdir(exist_ok=True)
    if subject != GENERATED:
        _path(subject).write_text(sections_to_text(share_first_steps(sections)))
        return
    _path(subject).write_bytes(lzma.compress(sections_to_text(sections).encode()))
    (RECORDED / f"{GENERATED}.txt").write_text(_index(sections))


@cache
def _sections(subject: str) -> Sections:
    """The same dict each time: what is kept changes it."""
    path = _path(subject)
    if not path.exists():
        return {}
    content = path.read_bytes()
    sections = text_to_sections((lzma.decompress(content) if subject == GENERATED else content).decode())
    return {name: own_first_step(name, sections) for name in sections}


def _path(subject: str) -> Path:
    return RECORDED / (f"{GENERATED}.xz" if subject == GENERATED else f"{subject}.txt")


def _index(sections: Mapping[str, Sequence[str]]) -> str:
    lines = []
    for name, content in sections.items():
        calls = sum(line.startswith(_CALL) for line in content)
        checksum = zlib.crc32("\n".join(content).encode())
        lines.append(f"{name}: {calls} calls, {len(content)} lines, {checksum:08x}\n")
    return "".join(lines)
