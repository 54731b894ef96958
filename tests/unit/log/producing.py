"""Appends of one idempotent or transactional producer, and end markers."""

import pytest
from tests.unit.log.support import NOW_MS, batch

from klamm.log.errors import AppendRefused
from klamm.log.log import Log
from klamm.log.producers import Origin
from klamm.model.errors import ErrorCode
from klamm.wire.records import ControlType, EndMarker, build_end_marker

MAX_SEQUENCE = 2**31 - 1
PID = 7


def send(log: Log, sequence: int, *values: str, epoch: int = 0, transactional: bool = False) -> int:
    """Append as producer 7; the offset it got."""
    content = batch(*(values or ("v",)), producer=(PID, epoch, sequence), transactional=transactional)
    return log.append_as_leader(content, 0).first_offset


def refusal(log: Log, sequence: int, epoch: int = 0, transactional: bool = False) -> ErrorCode:
    """The error code with which the append is refused."""
    end = log.end_offset
    with pytest.raises(AppendRefused) as caught:
        send(log, sequence, epoch=epoch, transactional=transactional)
    assert log.end_offset == end
    return caught.value.code


def mark(log: Log, kind: ControlType, coordinator_epoch: int = 0, epoch: int = 0, producer_id: int = PID) -> int:
    """Append an end marker; its offset."""
    content = build_end_marker(EndMarker(kind, coordinator_epoch), producer_id, epoch, NOW_MS)
    return log.append_as_leader(content, 0, Origin.COORDINATOR).first_offset
