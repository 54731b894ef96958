"""Injected bugs: who is controller, and what it may write."""

import asyncio
from typing import Any

from tests.simulation.injected_bugs.mutant import Patch

from klamm.controller import controller, controller_election, event_queue, events
from klamm.controller.context import ControllerContext
from klamm.controller.events import Event
from klamm.controller.term_context import TermContext
from klamm.zk import fenced
from klamm.zk.operations import Check
from klamm.zk.store import Store
from klamm.zk.znodes import CONTROLLER_EPOCH


def epoch_read_before_each_write(patch: Patch) -> None:
    """Each write is bound to the epoch's current version instead of the one of the election."""

    async def write(self: fenced.FencedWriter, ops: Any) -> Any:
        """The patched function, with the injected bug."""
        client: Any = self._client
        _, stat = await client.get(CONTROLLER_EPOCH)
        return await fenced.write_fenced(client, stat.version, ops) if ops else []

    patch.setattr(fenced.FencedWriter, "write", write)


def writes_without_epoch_check(patch: Patch) -> None:
    """The controller's writes are not bound to the version of `/controller_epoch`."""
    patch.setattr(fenced, "Check", lambda path, version: Check(path, -1))


def context_survives_the_term(patch: Patch) -> None:
    """A new term begins with the memory of the earlier one."""
    kept: dict[int, ControllerContext] = {}
    begin = controller_election.ControllerElection._create_term

    def begin_with_the_old(self: Any, store: Any, epoch: Any, cause: str) -> None:
        """The patched function, with the injected bug."""

        def context(number: int) -> ControllerContext:
            found = kept.setdefault(id(self), ControllerContext(number))
            found.epoch = number
            return found

        patch.setattr(controller_election, "ControllerContext", context)
        begin(self, store, epoch, cause)

    patch.setattr(controller_election.ControllerElection, "_create_term", begin_with_the_old)


def replaced_controller_handles_events(patch: Patch) -> None:
    """A controller that has lost `/controller` goes on handling events."""
    handle = controller.Controller._handle
    last: dict[int, TermContext] = {}

    async def handle_anyway(self: Any, event: Event, cause: str) -> None:
        """The patched function, with the injected bug."""
        term = self._election.term
        if term is not None:
            last[id(self)] = term
        handler = controller.HANDLERS.get(type(event))
        if term is None and handler is not None and id(self) in last:
            await handler(last[id(self)], event)
        else:
            await handle(self, event, cause)

    patch.setattr(controller.Controller, "_handle", handle_anyway)


def waiting_requests_not_answered(patch: Patch) -> None:
    """Events that a session expiry drops leave their callers without a response."""

    def preempt(self: event_queue.QueuedEvent) -> None:
        """The patched function, with the injected bug."""
        self.spent = True
        self.started.set()

    patch.setattr(event_queue.QueuedEvent, "preempt", preempt)


def controller_znode_without_term_is_active(patch: Patch) -> None:
    """A node that finds `/controller` taken does nothing, even if it holds it itself."""
    elect = controller_election.ControllerElection.elect

    async def give_up_early(self: Any, cause: str) -> None:
        """The patched function, with the injected bug."""
        holder = await self._current_store().read_controller(watch=True)
        if holder is None:
            await elect(self, cause)

    async def keep(self: Any, cause: str, why: str) -> None:
        """The patched function, with the injected bug."""
        await self.resign(cause, why)

    patch.setattr(controller_election.ControllerElection, "elect", give_up_early)
    patch.setattr(controller_election.ControllerElection, "resign_and_delete_znode", keep)


def resigned_without_a_watch(patch: Patch) -> None:
    """A controller that has resigned does not watch `/controller`."""
    read = Store.read_controller

    async def unwatched(self: Store, watch: bool = False) -> Any:
        """The patched function, with the injected bug."""
        return await read(self)

    patch.setattr(Store, "read_controller", unwatched)


def topics_unwatched(patch: Patch) -> None:
    """The controller does not watch the list of topics."""
    listed = Store.list_topics

    async def unwatched(self: Store, watch: bool = False) -> Any:
        """The patched function, with the injected bug."""
        return await listed(self)

    patch.setattr(Store, "list_topics", unwatched)


def expiry_waits_for_next_session(patch: Patch) -> None:
    """A session expiry waits behind the other events in the queue."""

    async def wait(self: Any) -> None:
        """For an event that comes only once this has returned."""
        store = self._store
        await self._queue.clear_and_put(events.Expire()).started.wait()
        while self._store is store:  # noqa: ASYNC110  # a mutant may be clumsy
            await asyncio.sleep(0.1)

    patch.setattr(controller.Controller, "session_expired", wait)
