"""The request lists that old tools write to ZooKeeper; handled entries are removed.

`/admin/reassign_partitions` shows, too, which reassignments are unfinished.
Source: KafkaController.maybeRemoveFromZkReassignment (3.9).
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.ids import BrokerId, TopicPartition
from klamm.zk.admin_znodes import decode_reassignment, encode_reassignment
from klamm.zk.errors import NoAuth, WriteRefused
from klamm.zk.tool_requests import Remainder
from klamm.zk.znodes import REASSIGN_PARTITIONS, MalformedZnode


async def change_list(
    term: TermContext, path: str, what: str, rest: Callable[[bytes | None], bytes | Remainder]
) -> None:
    """Replace the content of the znode at `path` by what `rest` returns for the present content.

    A refused write is only written to the journal.
    """
    try:
        changed = await term.store.tool_requests.change(path, rest)
    except WriteRefused as error:
        term.journal.refused(term.cause, path, str(error))
        return
    if changed:
        term.journal.write(term.cause, what, path=path)


async def unless_hidden(term: TermContext, path: str, handling: Awaitable[None]) -> None:
    """Await the handling of the list at `path` in a failover, which must not fail because an ACL hides that list.

    It is read again later.
    """
    try:
        await handling
    except NoAuth as error:
        term.journal.refused(term.cause, path, str(error))
        term.store.writer.add_refused(path)


REASSIGNMENT_LIST: Final = "reassignment list"
"""The name of this znode in the journal."""
Entry = tuple[TopicPartition, tuple[BrokerId, ...]]


async def remove_finished_entries(term: TermContext, finished: Iterable[Partition]) -> None:
    """Remove entries whose target these partitions reached; the znode is deleted with its last entry."""
    reached = set(finished)

    def is_reached(entry: Entry) -> bool:
        """Whether the partition of the entry has reached exactly the replicas of the entry."""
        p = term.context.partition(entry[0].topic, entry[0].partition)
        return p in reached and p.replicas == entry[1]

    await remove_entries(term, is_reached)


async def remove_entries(term: TermContext, is_settled: Callable[[Entry], bool]) -> None:
    """Remove the entries for which `is_settled` is true; an unreadable znode is left to its own event."""

    def rest(payload: bytes | None) -> bytes | Remainder:
        """Return the content of the znode without the settled entries.

        `NOTHING` where no entry is left, `AS_IT_IS` where none is settled or the content is malformed.
        """
        try:
            listed = decode_reassignment(payload)
        except MalformedZnode:
            return Remainder.AS_IT_IS
        left = {p: replicas for p, replicas in listed.items() if not is_settled((p, replicas))}
        if not left:
            return Remainder.NOTHING
        return Remainder.AS_IT_IS if len(left) == len(listed) else encode_reassignment(left)

    await change_list(term, REASSIGN_PARTITIONS, REASSIGNMENT_LIST, rest)
