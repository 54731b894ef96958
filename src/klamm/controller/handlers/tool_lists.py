"""The request lists that old tools write to ZooKeeper: handled entries are removed."""

from collections.abc import Callable

from klamm.controller.term_context import TermContext
from klamm.zk.errors import WriteRefused
from klamm.zk.tool_requests import Remainder


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
