"""Scripts with what Apache Kafka answered, for the part of the comparison that needs no Apache Kafka."""

import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.differential.coordinators.script import Script, from_json, to_json

PATH = Path(__file__).with_name("recorded.xz")


class Recording(NamedTuple):
    script: Script
    lines: tuple[str, ...]


def save(recordings: Sequence[Recording]) -> None:
    """Replace all recordings: of each the script as JSON, its transcript, and an empty line."""
    sections = ["\n".join([to_json(script), *lines]) for script, lines in recordings]
    PATH.write_bytes(lzma.compress("\n\n".join(sections).encode()))


def read() -> list[Recording]:
    sections = (section.splitlines() for section in lzma.decompress(PATH.read_bytes()).decode().split("\n\n"))
    return [Recording(from_json(script), tuple(lines)) for script, *lines in sections]
