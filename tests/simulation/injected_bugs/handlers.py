"""Injected bugs of event handlers that wait for what only a later event can bring."""

import asyncio
from typing import Any

from tests.simulation.injected_bugs.mutant import Patch

from klamm.controller.handlers import brokers, partitions
from klamm.controller.term_context import TermContext

_POLL_S = 0.1


def handlers_wait_for_brokers(patch: Patch) -> None:
    """A handler waits until its control requests are delivered: of a dead broker only the next event tells."""
    send = TermContext.send_requests

    async def send_and_wait(self: Any) -> None:
        """The patched method, with the injected bug."""
        await send(self)
        while self.channels.waiting:  # noqa: ASYNC110  # the bug
            await asyncio.sleep(_POLL_S)

    patch.setattr(TermContext, "send_requests", send_and_wait)


def elections_wait_for_live_replicas(patch: Patch) -> None:
    """A handler waits until every partition is led by a live broker, of which only the next event tells."""
    elect = partitions.trigger_online

    async def until_led(term: TermContext, topic: str | None = None) -> int:
        """The patched function, with the injected bug."""
        elected = await elect(term, topic)
        while next(iter(term.context.without_online_leader()), None) is not None:  # noqa: ASYNC110  # the bug
            await asyncio.sleep(_POLL_S)
        return elected

    patch.setattr(brokers, "trigger_online", until_led)
