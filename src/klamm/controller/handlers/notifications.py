"""Sequential znodes with which brokers call the controller: looked at once, then removed.

Source: the `finally` of processIsrChangeNotification and processLogDirEventNotification (KafkaController.scala, 3.9).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from klamm.controller.workbench import Workbench
from klamm.model.errors import KlammError


@asynccontextmanager
async def notifications(bench: Workbench, parent: str) -> AsyncIterator[dict[str, bytes | None]]:
    """By name, what is there to be worked off; the list is watched from here on.

    Removed afterwards, also where we erred: the next controller would err on them, too. They stay where the work needs
    ZooKeeper and cannot have it, and so do those that it does not show: the event comes again, and finds them. Kafka
    removes them unread.
    """
    children = await bench.store.list_notifications(parent)
    found, refused = await bench.store.read_notifications(parent, children)
    try:
        yield found
    except KlammError:
        raise
    except Exception:
        await bench.store.delete_notifications(parent, list(found))
        raise
    await bench.store.delete_notifications(parent, list(found))
    if refused:
        raise KlammError(f"ZooKeeper does not show {', '.join(f'{name} ({why})' for name, why in refused.items())}")
