"""The lists that old tools leave in ZooKeeper: what is settled goes, and what cannot go ends no event."""

from collections.abc import Callable

from klamm.controller.term_context import TermContext
from klamm.zk.errors import WriteRefused
from klamm.zk.tool_requests import Remainder


async def change_list(
    term: TermContext, path: str, what: str, rest: Callable[[bytes | None], bytes | Remainder]
) -> None:
    """`rest` says what remains of it. A refused removal is journalled, and ends no failover."""
    try:
        changed = await term.store.tool_requests.change(path, rest)
    except WriteRefused as error:
        term.journal.refused(term.cause, path, str(error))
        return
    if changed:
        term.journal.write(term.cause, what, path=path)
