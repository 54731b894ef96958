"""Offsets of groups as CSV, as kafka-consumer-groups writes and reads them. Source: ConsumerGroupCommand.java."""

import csv
from collections.abc import Mapping
from typing import Final

from klamm.model.errors import UsageError
from klamm.model.ids import TopicPartition

Offsets = dict[TopicPartition, int]
_WITH_GROUP: Final = 4
_WITHOUT_GROUP: Final = 3
_MAX_UNQUOTED: Final = 24
_MIN_UNQUOTED: Final = "-"
_MAX_PARTITION: Final = 2**31 - 1


def parse_offsets_file(content: str, name: str, only_group: str | None) -> dict[str, Offsets]:
    """Parse lines of `topic,partition,offset` (for `only_group`), or `group,topic,partition,offset`.

    Raises UsageError, which names the line.
    """
    found: dict[str, Offsets] = {}
    for number, row in enumerate(_rows(content, name), start=1):
        if not row:
            continue
        group = only_group
        if len(row) == _WITH_GROUP:
            group, *row = row
        if group is None or len(row) != _WITHOUT_GROUP:
            form = "group,topic,partition,offset" if only_group is None else "topic,partition,offset"
            raise UsageError(f"--from-file {name}, line {number}: the line is not {form}.")
        try:
            partition, offset = TopicPartition(row[0], int(row[1])), int(row[2])
        except ValueError:
            raise UsageError(f"--from-file {name}, line {number}: partition and offset must be numbers.") from None
        if not (0 <= partition.partition <= _MAX_PARTITION and offset >= 0):
            raise UsageError(
                f"--from-file {name}, line {number}: partition and offset must not be negative, and a partition is at "
                f"most {_MAX_PARTITION}."
            )
        found.setdefault(group, {})[partition] = offset
    if not found:
        raise UsageError(f"--from-file {name} is empty: give lines as --export prints them.")
    return found


def _rows(content: str, name: str) -> list[list[str]]:
    """The fields of each line. Raises UsageError for what is no CSV."""
    reader = csv.reader(content.splitlines())
    try:
        return list(reader)
    except csv.Error as error:
        raise UsageError(f"--from-file {name}, line {reader.line_num}: the line is not CSV ({error}).") from None


def format_offsets(offsets: Mapping[str, Mapping[TopicPartition, int]], *, has_one_group: bool) -> list[str]:
    """The lines that `parse_offsets_file` reads; with the group's name unless one group was asked for."""
    rows = [
        [*([] if has_one_group else [group]), partition.topic, str(partition.partition), str(offset)]
        for group, found in offsets.items()
        for partition, offset in sorted(found.items())
    ]
    return [",".join(map(_quoted, row)) for row in rows]


def _quoted(text: str) -> str:
    """The text as a field; in quotes where Kafka's tool has them, also where CSV needs none."""
    needs_quotes = len(text) > _MAX_UNQUOTED or any(c < _MIN_UNQUOTED for c in text)
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if needs_quotes else text
