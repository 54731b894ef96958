"""The packets of multi and multiRead; the loops are optimised, since a packet may have thousands of znodes.

A packet is a list of items, each after a header (type, done, error), and a last header with done set.
"""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from klamm.zk.errors import ZkCode
from klamm.zk.jute import INT, STAT, MalformedPacket, Reader, Stat, acls, buffer, pack_int
from klamm.zk.operations import ChildrenResult, Create, Delete, GetResult, Op, Result, Set
from klamm.zk.requests import Opcode, Request

T = TypeVar("T")

_HEADER: Final = struct.Struct(">ibi")
_HEADER_AND_INT: Final = struct.Struct(">ibii")
_END: Final = _HEADER.pack(-1, 1, -1)
_CREATE, _SET, _DELETE, _CHECK, _GET, _CHILDREN = (
    _HEADER.pack(opcode, 0, -1)
    for opcode in (
        Opcode.CREATE2,
        Opcode.SET_DATA,
        Opcode.DELETE,
        Opcode.CHECK,
        Opcode.GET_DATA,
        Opcode.GET_CHILDREN,
    )
)
_SET_RESULT: Final = struct.Struct(">9x" + STAT.format[1:])
_OPCODE_AT: Final = 3
"""The offset of the header's byte that differs between opcodes."""
_OK: Final = ZkCode.OK
_DONE: Final = Result(_OK)
_NULL: Final = buffer(None)

_new = tuple.__new__  # a NamedTuple without its keyword handling


def multi(operations: Sequence[Op], chroot: str, path: str) -> Request[list[Result]]:
    """A multi request: all operations or none, in order; `path` is for messages only."""
    return Request(path, b"".join(_multi_pieces(operations, chroot)), partial(_read_results, len(operations)))


def multi_get(paths: Sequence[str], chroot: str) -> Request[list[GetResult] | None]:
    """A multiRead request for data and stat. The value is None if the server does not support multiRead."""
    return _multi_read(_GET, paths, chroot, _read_gets)


def multi_children(paths: Sequence[str], chroot: str) -> Request[list[ChildrenResult] | None]:
    """A multiRead request for children. The value is None if the server does not support multiRead."""
    return _multi_read(_CHILDREN, paths, chroot, _read_children)


def _multi_pieces(operations: Sequence[Op], chroot: str) -> list[bytes]:
    """Encode the operations of a multi request."""
    pieces = [pack_int(Opcode.MULTI)]
    for op in operations:
        raw = (chroot + op.path if op.path != "/" else chroot or "/").encode()
        if type(op) is Set:
            data = op.data
            if data is None:
                pieces += (_SET, pack_int(len(raw)), raw, _NULL, pack_int(op.version))
            else:
                pieces += (_SET, pack_int(len(raw)), raw, pack_int(len(data)), data, pack_int(op.version))
        elif isinstance(op, Create):
            pieces += (_CREATE, pack_int(len(raw)), raw, buffer(op.data), acls(op.acl), pack_int(op.flags))
        else:
            head = _DELETE if isinstance(op, Delete) else _CHECK
            pieces += (head, pack_int(len(raw)), raw, pack_int(op.version))
    pieces.append(_END)
    return pieces


def _multi_read(
    head: bytes, paths: Sequence[str], chroot: str, read: Callable[[Sequence[str], Reader], list[T] | None]
) -> Request[list[T] | None]:
    """A multiRead request of one kind, with the decoder of its reply."""
    pieces = [pack_int(Opcode.MULTI_READ)]
    for path in paths:
        raw = (chroot + path if path != "/" else chroot or "/").encode()
        pieces += (head, pack_int(len(raw)), raw, b"\0")
    pieces.append(_END)
    return Request(paths[0], b"".join(pieces), partial(read, paths))


def _read_results(expected: int, reader: Reader) -> list[Result]:
    """Decode the results of a multi."""
    packet, position = reader.packet, reader.position
    last = len(packet) - _HEADER.size
    results: list[Result] = []
    try:
        while position < last:
            (opcode,) = INT.unpack_from(packet, position)
            if opcode == Opcode.SET_DATA:
                before = len(results)
                results += _read_consecutive_sets(packet, position, last)
                position += (len(results) - before) * _SET_RESULT.size
            elif opcode in (Opcode.CHECK, Opcode.DELETE):
                results.append(_DONE)
                position += 9
            elif opcode == Opcode.ERROR:
                results.append(Result(ZkCode(_HEADER_AND_INT.unpack_from(packet, position)[3])))
                position += 13
            elif opcode == Opcode.CREATE2:
                one = Reader(packet, position + 9)
                results.append(Result(_OK, one.text(), one.stat()))
                position = one.position
            elif opcode == Opcode.CREATE:  # so answers a server before 3.6
                one = Reader(packet, position + 9)
                results.append(Result(_OK, one.text()))
                position = one.position
            else:
                raise MalformedPacket(f"the reply to a multi has the unknown result type {opcode}")
    except struct.error as error:
        raise MalformedPacket(f"the reply to a multi is truncated at offset {position}") from error
    _check_end(packet, position, len(results), expected)
    return results


def _read_consecutive_sets(packet: bytes, position: int, last: int) -> list[Result]:
    """Decode a run of Set results, the usual case, in one pass. Raises struct.error if the first is truncated."""
    size = _SET_RESULT.size
    opcodes = packet[position + _OPCODE_AT : last : size]
    count = len(opcodes) - len(opcodes.lstrip(bytes([Opcode.SET_DATA])))
    whole = max(1, min(count, (last - position) // size))
    stats = _SET_RESULT.iter_unpack(packet[position : min(position + whole * size, last)])
    return [_new(Result, (_OK, None, _new(Stat, stat))) for stat in stats]


def _read_gets(paths: Sequence[str], reader: Reader) -> list[GetResult] | None:
    """Decode the results of multi_get; None for an empty reply."""
    if not reader.left:
        return None
    packet, position = reader.packet, reader.position
    last = len(packet) - _HEADER.size
    unpack_head, unpack_stat = _HEADER_AND_INT.unpack_from, STAT.unpack_from
    results: list[GetResult] = []
    add = results.append
    try:
        for path in paths:
            if position >= last:
                break
            opcode, _, _, number = unpack_head(packet, position)
            start = position + 13
            if opcode == 4 and number >= -1:
                end = start + number if number > 0 else start
                stat = _new(Stat, unpack_stat(packet, end))
                add(_new(GetResult, (path, _OK, None if number < 0 else packet[start:end], stat)))
                position = end + 68
            elif opcode == -1:
                add(GetResult(path, ZkCode(number), None, None))
                position = start
            else:
                raise MalformedPacket(
                    f"the reply to a multiRead has the unexpected result type {opcode} with {number} bytes for getData"
                )
    except struct.error as error:
        raise MalformedPacket(
            f"the reply to a multiRead has a getData result that is truncated at offset {position}"
        ) from error
    _check_end(packet, position, len(results), len(paths))
    return results


def _read_children(paths: Sequence[str], reader: Reader) -> list[ChildrenResult] | None:
    """Decode the results of multi_children; None for an empty reply."""
    if not reader.left:
        return None
    results: list[ChildrenResult] = []
    for path in paths:
        opcode, done = reader.int32(), reader.boolean()
        reader.int32()
        if done:
            raise MalformedPacket(
                f"the reply to a multiRead has {len(results)} results, but {len(paths)} were expected"
            )
        if opcode == Opcode.GET_CHILDREN:
            results.append(ChildrenResult(path, _OK, reader.texts()))
        elif opcode == Opcode.ERROR:
            results.append(ChildrenResult(path, ZkCode(reader.int32()), []))
        else:
            raise MalformedPacket(f"the reply to a multiRead has the unexpected result type {opcode} for getChildren")
    _check_end(reader.packet, reader.position, len(results), len(paths))
    return results


def _check_end(packet: bytes, position: int, found: int, expected: int) -> None:
    """Raise MalformedPacket unless the packet ends after the expected number of results."""
    if packet[position:] != _END or found != expected:
        raise MalformedPacket(
            f"the reply to a multi has {found} results up to offset {position} of {len(packet)}, but {expected} "
            "were expected"
        )
