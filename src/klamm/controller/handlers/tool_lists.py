"""The lists that old tools leave in ZooKeeper: what is settled goes, and what cannot go ends no event."""

from collections.abc import Callable

from klamm.controller.term_context import TermContext
from klamm.zk.controller_store import WriteRefused
from klamm.zk.tool_requests import Left, change_tool_request


async def change_list(term: TermContext, path: str, what: str, rest: Callable[[bytes | None], bytes | Left]) -> None:
    """`rest` says what of it stays. One that ZooKeeper refuses to remove is journalled, and ends no failover."""
    try:
        changed = await change_tool_request(term.store, path, rest)
    except WriteRefused as error:
        term.journal.refused(term.cause, path, str(error))
        return
    if changed:
        term.journal.write(term.cause, what, path=path)
