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
from klamm.zk.operations import Check, Create, Op, Result, Set
from klamm.zk.znodes import CONTROLLER_EPOCH

T = TypeVar("T")

MAX_OPS: Final = 1_000
MAX_BYTES: Final = 400_000  # under half of a server's usual packet limit of 1 MiB
OP_OVERHEAD_BYTES: Final = 64  # an open ACL, lengths, version
_NARROWING: Final = 4  # how much smaller the multis of a second attempt are


class ControllerMoved(KlammError):
    """Another controller was elected since: this one may write no more, and must resign."""


class MultiClient(Protocol):
    async def multi(self, operations: Sequence[Op]) -> list[Result]: ...


async def write_fenced(client: MultiClient, epoch_version: int, ops: Sequence[Op]) -> list[Result]:
    """One result per operation, in order; each stands for itself, as if it had been alone in its multi.

    `epoch_version` is the version of `/controller_epoch` that this controller won with. Raises ControllerMoved where it
    moved on since, ZkError where the check itself could not be made.
    """
    assert epoch_version >= 0, "a fenced write needs a won election"
    results: list[Result | None] = [None] * len(ops)
    await _write(client, Check(CONTROLLER_EPOCH, epoch_version), list(enumerate(ops)), MAX_OPS, results)
    return [r for r in results if r is not None]


async def _write(
    client: MultiClient, check: Check, ops: list[tuple[int, Op]], most: int, results: list[Result | None]
) -> None:
    attempts = [_attempt(client, check, batch, most, results) for batch in _batches(ops, most)]
    if len(attempts) == 1:
        await attempts[0]
        return
    for outcome in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


async def _attempt(
    client: MultiClient, check: Check, batch: list[tuple[int, Op]], most: int, results: list[Result | None]
) -> None:
    answers = await client.multi([check, *(op for _, op in batch)])
    if answers[0].code is ZkCode.BAD_VERSION:
        raise ControllerMoved(
            f"{CONTROLLER_EPOCH} is no longer at version {check.version}: another controller was elected"
        )
    if answers[0].code is not ZkCode.OK:
        raise error_of(answers[0].code, CONTROLLER_EPOCH)
    failed = next((i for i, a in enumerate(answers[1:]) if a.code is not ZkCode.OK), None)
    if failed is None:
        for (index, _), answer in zip(batch, answers[1:], strict=True):
            results[index] = answer
        return
    results[batch[failed][0]] = answers[failed + 1]
    narrower = max(1, min(most, len(batch)) // _NARROWING)
    for rest in (batch[:failed], batch[failed + 1 :]):
        if rest:
            await _write(client, check, rest, narrower, results)


def _batches(ops: list[tuple[int, Op]], most: int) -> Iterator[list[tuple[int, Op]]]:
    batch: list[tuple[int, Op]] = []
    size = 0
    for indexed in ops:
        weight = _weight(indexed[1])
        if batch and (len(batch) >= most or size + weight > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(indexed)
        size += weight
    if batch:
        yield batch


def _weight(op: Op) -> int:
    data = op.data if isinstance(op, Create | Set) else None
    return len(op.path) + len(data or b"") + OP_OVERHEAD_BYTES


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Cut into lists of at most `size`."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
