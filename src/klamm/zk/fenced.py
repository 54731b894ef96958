"""Writes that only the elected controller can make: each rides in a multi that checks `/controller_epoch` (KAFKA-6082).

Many writes share one multi, cut by bytes and by number. Where one of them is refused ZooKeeper applies none, so the
others are sent again without it: whoever calls gets an answer for every single write.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol, TypeVar

from klamm.model.errors import KlammError
from klamm.zk.errors import ZkCode, error_of
from klamm.zk.operations import Check, Create, Delete, Op, Result, Set
from klamm.zk.znodes import CONTROLLER_EPOCH

T = TypeVar("T")

MAX_OPS: Final = 1_000
MAX_BYTES: Final = 400_000  # under half of a server's usual packet limit of 1 MiB
OP_OVERHEAD_BYTES: Final = 64  # an open ACL, lengths, version
DELETES_AT_ONCE: Final = 2_000
_RACES: Final = frozenset({ZkCode.NO_NODE, ZkCode.NODE_EXISTS, ZkCode.BAD_VERSION})
"""Somebody was faster: whoever wrote looks what is there now."""
_NARROWING: Final = 4  # how much smaller the multis of a second attempt are


class ControllerMoved(KlammError):
    """Another controller was elected since: this one may write no more, and must resign."""


class MultiClient(Protocol):
    async def multi(self, operations: Sequence[Op]) -> list[Result]: ...


class FencedWriter:
    """The writes of one term; after ControllerMoved it is of no more use."""

    def __init__(self, client: MultiClient, epoch_version: int) -> None:
        self._client = client
        self._epoch_version = epoch_version
        self._refused: dict[str, None] = {}

    async def write(self, ops: Sequence[Op]) -> list[Result]:
        """One result per operation. Raises ControllerMoved."""
        if not ops:
            return []
        results = await write_fenced(self._client, self._epoch_version, ops)
        for op, result in zip(ops, results, strict=True):
            if result.code is not ZkCode.OK and result.code not in _RACES:
                self._refused[op.path] = None
        return results

    async def delete_all(self, paths: Sequence[str]) -> dict[str, ZkCode]:
        """What stays, with ZooKeeper's reason; what is gone already does not matter."""
        failed: dict[str, ZkCode] = {}
        for chunk in chunks(paths, DELETES_AT_ONCE):
            for path, result in zip(chunk, await self.write([Delete(path) for path in chunk]), strict=True):
                if result.code not in (ZkCode.OK, ZkCode.NO_NODE):
                    failed[path] = result.code
        return failed

    def take_refused(self) -> list[str]:
        """Paths that ZooKeeper refused to change since the last call: what depends on them is to be retried."""
        taken, self._refused = self._refused, {}
        return list(taken)

    def add_refused(self, path: str) -> None:
        """It could not be read, and a write depends on it."""
        self._refused[path] = None


async def write_fenced(client: MultiClient, epoch_version: int, ops: Sequence[Op]) -> list[Result]:
    """One result per operation, in order; each stands for itself, as if it had been alone in its multi.

    `epoch_version` is the version of `/controller_epoch` that this controller won with. Raises ControllerMoved where it
    moved on since, ZkError where the check itself could not be made.
    """
    assert epoch_version >= 0, "a fenced write needs a won election"
    return await _write(client, Check(CONTROLLER_EPOCH, epoch_version), ops, MAX_OPS)


async def _write(client: MultiClient, check: Check, ops: Sequence[Op], most: int) -> list[Result]:
    attempts = [_attempt(client, check, batch, most) for batch in _batches(ops, most)]
    if len(attempts) == 1:
        return await attempts[0]
    results: list[Result] = []
    for outcome in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
        results += outcome
    return results


async def _attempt(client: MultiClient, check: Check, batch: Sequence[Op], most: int) -> list[Result]:
    """Write one batch with the epoch check; the operations around a refused one are written again."""
    checked, *answers = await client.multi([check, *batch])
    if checked.code is ZkCode.BAD_VERSION:
        raise ControllerMoved(
            f"{CONTROLLER_EPOCH} is no longer at version {check.version}: another controller was elected"
        )
    if checked.code is not ZkCode.OK:
        raise error_of(checked.code, CONTROLLER_EPOCH)
    failed = next((i for i, a in enumerate(answers) if a.code is not ZkCode.OK), None)
    if failed is None:
        return answers
    narrower = max(1, min(most, len(batch)) // _NARROWING)
    before = await _write(client, check, batch[:failed], narrower)
    return [*before, answers[failed], *await _write(client, check, batch[failed + 1 :], narrower)]


def _batches(ops: Sequence[Op], most: int) -> Iterator[Sequence[Op]]:
    """Cut into batches of at most `most` operations and MAX_BYTES bytes."""
    start = size = 0
    for index, op in enumerate(ops):
        weight = len(op.path) + OP_OVERHEAD_BYTES
        if isinstance(op, Create | Set):
            weight += len(op.data or b"")
        if index > start and (index - start >= most or size + weight > MAX_BYTES):
            yield ops[start:index]
            start, size = index, 0
        size += weight
    if start < len(ops):
        yield ops[start:]


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Cut into lists of at most `size`."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
