"""Sequential znodes with which brokers call the controller: looked at once, then removed.

Source: the `finally` of processIsrChangeNotification and processLogDirEventNotification (KafkaController.scala, 3.9).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from klamm.controller.term_context import TermContext
from klamm.model.errors import KlammError


class Announced(NamedTuple):
    found: dict[str, bytes | None]
    """By name, what is there to be worked off."""
    not_shown: dict[str, str]
    """Why not, for those that ZooKeeper does not show; whoever works them off adds those whose subject it does not."""


@asynccontextmanager
async def notifications(term: TermContext, parent: str) -> AsyncIterator[Announced]:
    """What was announced; the list is watched from here on.

    Removed afterwards, also where we erred: the next controller would err on them, too. They stay where the work needs
    ZooKeeper and cannot have it, and so do those that were not shown: the event comes again, and finds them. Kafka
    removes them unread.
    """
    children = await term.store.list_notifications(parent)
    announced = Announced(*await term.store.read_notifications(parent, children))
    try:
        yield announced
    except KlammError:
        raise
    except Exception:
        await term.store.delete_notifications(parent, list(announced.found))
        raise
    not_shown = announced.not_shown
    await term.store.delete_notifications(parent, [name for name in announced.found if name not in not_shown])
    if not_shown:
        raise KlammError(
            f"cannot read from ZooKeeper: {', '.join(f'{name} ({why})' for name, why in not_shown.items())}"
        )
