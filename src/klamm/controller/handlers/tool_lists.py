"""The lists that old tools leave in ZooKeeper: what is settled goes, and what cannot go ends no event."""

from collections.abc import Callable

from klamm.controller.workbench import Workbench
from klamm.zk.controller_store import WriteRefused
from klamm.zk.tool_requests import Left, change_tool_request


async def change_list(bench: Workbench, path: str, what: str, rest: Callable[[bytes | None], bytes | Left]) -> None:
    """`rest` says what of it stays. One that ZooKeeper keeps is told of: who takes office must not fail for it."""
    try:
        changed = await change_tool_request(bench.store, path, rest)
    except WriteRefused as error:
        bench.journal.refused(bench.cause, path, str(error))
        return
    if changed:
        bench.journal.write(bench.cause, what, path=path)
