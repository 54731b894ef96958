"""Writes of the elected controller: each multi also checks the version of `/controller_epoch` (KAFKA-6082).

Several writes share one multi, up to a size and a number. ZooKeeper applies none of them if it refuses one; the others
are then sent again without it, so that every write gets a result of its own.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol, TypeVar

from klamm.model.errors import KlammError
from klamm.zk.errors import RequestTooLarge, ZkCode, error_of
from klamm.zk.operations import Check, Create, Delete, Op, Result, Set
from klamm.zk.znodes import CONTROLLER_EPOCH

T = TypeVar("T")

MAX_OPS: Final = 1_000
"""Operations in one multi."""
MAX_BYTES: Final = 400_000
"""The size of one multi, less than half of a server's default packet limit of 1 MiB."""
OP_OVERHEAD_BYTES: Final = 64
"""The assumed size of an operation besides path and data: ACL, lengths, version."""
DELETES_AT_ONCE: Final = 2_000
_WITH_DATA: Final = (Create, Set)
"""The operations that have data; `Create | Set` would be made anew for each operation."""
_RACES: Final = frozenset({ZkCode.NO_NODE, ZkCode.NODE_EXISTS, ZkCode.BAD_VERSION})
"""Error codes after a concurrent change: the caller reads the znode again."""
_BATCH_SHRINK_FACTOR: Final = 4
"""How much smaller the multis are after a refusal."""


class ControllerMoved(KlammError):
    """Another controller was elected; this one must not write any more, and has to resign."""


class _EpochUnchecked(Exception):
    """ZooKeeper refused to check the controller epoch, and so applied nothing of the multi."""

    def __init__(self, code: ZkCode) -> None:
        super().__init__(code)
        self.code = code


class MultiClient(Protocol):
    """The part of a ZooKeeper client that fenced writes use."""

    async def multi(self, operations: Sequence[Op]) -> list[Result]:
        """Do all operations or none; return one result for each."""


class FencedWriter:
    """The writes of one term; not to be used after ControllerMoved."""

    def __init__(self, client: MultiClient, epoch_version: int) -> None:
        self._client = client
        self._epoch_version = epoch_version
        self._refused: dict[str, None] = {}

    async def write(self, ops: Sequence[Op]) -> list[Result]:
        """Write the operations if the controller epoch is still ours; one result per operation.

        Raises ControllerMoved.
        """
        if not ops:
            return []
        results = await write_fenced(self._client, self._epoch_version, ops)
        for op, result in zip(ops, results, strict=True):
            if result.code is not ZkCode.OK and result.code not in _RACES:
                self._refused[op.path] = None
        return results

    async def write_together(self, ops: Sequence[Op]) -> bool:
        """Write at most MAX_OPS operations in one multi; returns False if ZooKeeper refused it.

        Raises ControllerMoved.
        """
        assert 0 < len(ops) <= MAX_OPS, f"{len(ops)} operations cannot be one multi"
        try:
            results = await _multi(self._client, Check(CONTROLLER_EPOCH, self._epoch_version), ops)
        except _EpochUnchecked as error:
            raise error_of(error.code, CONTROLLER_EPOCH) from error
        return all(result.code is ZkCode.OK for result in results)

    async def delete_all(self, paths: Sequence[str]) -> dict[str, ZkCode]:
        """Delete the znodes; returns the error code of each that could not be deleted. Missing ones are skipped."""
        failed: dict[str, ZkCode] = {}
        for chunk in chunks(paths, DELETES_AT_ONCE):
            for path, result in zip(chunk, await self.write([Delete(path) for path in chunk]), strict=True):
                if result.code not in (ZkCode.OK, ZkCode.NO_NODE):
                    failed[path] = result.code
        return failed

    def pop_refused_paths(self) -> list[str]:
        """The paths that ZooKeeper refused to change since the last call; their writes have to be retried."""
        taken, self._refused = self._refused, {}
        return list(taken)

    def add_refused(self, path: str) -> None:
        """Add a path whose writes have to be retried, because a read that they depend on failed."""
        self._refused[path] = None


async def write_fenced(client: MultiClient, epoch_version: int, ops: Sequence[Op]) -> list[Result]:
    """Write the operations if the controller epoch is unchanged; one result per operation, in order.

    Each succeeds or fails by itself. `epoch_version` is the version of `/controller_epoch` after the election. Raises
    ControllerMoved if it changed since, ZkError if it could not be checked.
    """
    assert epoch_version >= 0, "a write that is fenced needs the controller epoch of a won election"
    try:
        return await _write(client, Check(CONTROLLER_EPOCH, epoch_version), ops, MAX_OPS)
    except _EpochUnchecked as error:
        raise error_of(error.code, CONTROLLER_EPOCH) from error


async def _write(client: MultiClient, check: Check, ops: Sequence[Op], max_ops: int) -> list[Result]:
    """Write the operations in batches, several at the same time.

    Where the epoch could be checked for some batches, the operations of the others were refused: what was written must
    reach the caller. Raises _EpochUnchecked where it could be checked for none.
    """
    batches = list(_batches(ops, max_ops))
    attempts = [_write_batch(client, check, batch, max_ops) for batch in batches]
    if len(attempts) == 1:
        return await attempts[0]
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    is_checked = any(not isinstance(outcome, BaseException) for outcome in outcomes)
    results: list[Result] = []
    for batch, outcome in zip(batches, outcomes, strict=True):
        if isinstance(outcome, _EpochUnchecked) and is_checked:
            results += [Result(outcome.code)] * len(batch)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            results += outcome
    return results


async def _write_batch(client: MultiClient, check: Check, batch: Sequence[Op], max_ops: int) -> list[Result]:
    """Write one batch in a multi with the epoch check; after a refused operation, the others are written again."""
    try:
        answers = await _multi(client, check, batch)
    except RequestTooLarge:
        if len(batch) > 1:
            raise
        return [Result(ZkCode.REQUEST_TOO_LARGE)]  # an operation above MAX_BYTES is alone; the others do not fail
    failed = next((i for i, a in enumerate(answers) if a.code is not ZkCode.OK), None)
    if failed is None:
        return answers
    narrower = max(1, min(max_ops, len(batch)) // _BATCH_SHRINK_FACTOR)
    before = await _write_again(client, check, batch[:failed], narrower)
    return [*before, answers[failed], *await _write_again(client, check, batch[failed + 1 :], narrower)]


async def _write_again(client: MultiClient, check: Check, ops: Sequence[Op], max_ops: int) -> list[Result]:
    """Write what was in a refused multi; its epoch was checked, so operations without a check are refused ones."""
    try:
        return await _write(client, check, ops, max_ops)
    except _EpochUnchecked as error:
        return [Result(error.code)] * len(ops)


async def _multi(client: MultiClient, check: Check, batch: Sequence[Op]) -> list[Result]:
    """Send the operations and the epoch check as one multi; returns the results of the operations.

    Raises ControllerMoved, _EpochUnchecked.
    """
    checked, *answers = await client.multi([check, *batch])
    if checked.code is ZkCode.BAD_VERSION:
        raise ControllerMoved(
            f"{CONTROLLER_EPOCH} is no longer at version {check.version}: another controller was elected"
        )
    if checked.code is not ZkCode.OK:
        raise _EpochUnchecked(checked.code)
    return answers


def _batches(ops: Sequence[Op], max_ops: int) -> Iterator[Sequence[Op]]:
    """Split into batches of at most `max_ops` operations and MAX_BYTES bytes."""
    start = size = 0
    for index, op in enumerate(ops):
        weight = len(op.path) + OP_OVERHEAD_BYTES
        if isinstance(op, _WITH_DATA):
            weight += len(op.data or b"")
        if index > start and (index - start >= max_ops or size + weight > MAX_BYTES):
            yield ops[start:index]
            start, size = index, 0
        size += weight
    if start < len(ops):
        yield ops[start:]


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Split into lists of at most `size`."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
