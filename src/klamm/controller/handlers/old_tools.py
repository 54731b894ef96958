"""Requests that old tools leave in ZooKeeper: reassignments and preferred elections. None is carried out yet."""

from klamm.controller.events import Event
from klamm.controller.workbench import Workbench
from klamm.model.errors import ErrorCode


async def on_request_of_old_tools(bench: Workbench, event: Event) -> None:
    """Refuse aloud what is there, and hear of the next one: any change of these paths spends the watch."""
    await refuse_requests_of_old_tools(bench)
    event.refuse(ErrorCode.UNSUPPORTED_VERSION)


async def refuse_requests_of_old_tools(bench: Workbench) -> None:
    for path, is_there in (await bench.store.watch_requests()).items():
        if is_there:
            bench.journal.refused(bench.cause, path, "not carried out by this controller; the request stays")
