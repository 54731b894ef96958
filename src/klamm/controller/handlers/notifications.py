"""Sequential znodes by which brokers notify the controller: each is read once, then deleted.

Source: the `finally` of processIsrChangeNotification and processLogDirEventNotification (KafkaController.scala, 3.9).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from klamm.controller.term_context import TermContext
from klamm.model.errors import KlammError


class Announced(NamedTuple):
    """The notifications below one znode."""

    found: dict[str, bytes | None]
    """The payload of each notification, by name."""
    not_shown: dict[str, str]
    """Notifications that ZooKeeper does not let this node read, with the reason; handlers add those about unreadable
    znodes."""


@asynccontextmanager
async def notifications(term: TermContext, parent: str) -> AsyncIterator[Announced]:
    """Read the notifications below `parent` and watch for new ones; they are deleted when the block ends.

    They are deleted also after a programming error, which the next controller would meet, too. They stay after a
    ZooKeeper error, as do those that cannot be read: the retried event finds them. Kafka deletes these unread.
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
            f"notifications in {parent} cannot be read, they are kept and read again: "
            f"{', '.join(f'{name} ({why})' for name, why in not_shown.items())}"
        )
