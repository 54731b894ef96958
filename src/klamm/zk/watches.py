"""The one-shot watches of a session, and the requests that restore them on another connection.

Watches of a whole subtree end with their connection (`client.ZooKeeper.watch_subtree`), and are not kept here.
Source: ZKWatchManager.java.
"""

from collections.abc import Iterator
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from klamm.zk import jute


class WatchKind(StrEnum):
    """The kinds of watches, as the server keeps them."""

    DATA = "data"  # the znode exists: fires when it is changed or deleted
    EXIST = "exist"  # it does not: fires when it is created
    CHILD = "child"  # fires when a child is created or deleted, or the znode itself is deleted


class EventType(IntEnum):
    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class WatchEvent(NamedTuple):
    type: EventType
    path: str


DATA, EXIST, CHILD = WatchKind

TRIGGERED_BY: Final = {
    EventType.CREATED: (DATA, EXIST),
    EventType.DATA_CHANGED: (DATA, EXIST),
    EventType.DELETED: (DATA, EXIST, CHILD),
    EventType.CHILDREN_CHANGED: (CHILD,),
}
"""By event, the kinds of watches that it triggers and removes."""


class Watches:
    """The watches that replies have set and no event has triggered yet."""

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths: dict[WatchKind, dict[str, None]] = {kind: {} for kind in WatchKind}

    def __len__(self) -> int:
        return sum(map(len, self._paths.values()))

    def add(self, kind: WatchKind, path: str) -> None:
        """Record that a watch of this kind is set on the path."""
        self._paths[kind][path] = None

    def remove_triggered(self, event: WatchEvent) -> None:
        """Remove the watches on the event's path that this event triggers."""
        for kind in TRIGGERED_BY[event.type]:
            self._paths[kind].pop(event.path, None)

    def set_watches_bodies(self, last_zxid: int, max_bytes: int) -> Iterator[bytes]:
        """Bodies of SetWatches requests that restore all watches, each of at most about `max_bytes`.

        SetWatches suffices: SetWatches2 adds only persistent watches, which are not restored.
        """
        batch: dict[WatchKind, list[bytes]] = {kind: [] for kind in WatchKind}
        size = 0
        for kind, paths in self._paths.items():
            for path in paths:
                encoded = jute.text(path)
                if size and size + len(encoded) > max_bytes:
                    yield _set_watches(last_zxid, batch)
                    batch = {kind: [] for kind in WatchKind}
                    size = 0
                batch[kind].append(encoded)
                size += len(encoded)
        if size:
            yield _set_watches(last_zxid, batch)


def _set_watches(last_zxid: int, batch: dict[WatchKind, list[bytes]]) -> bytes:
    """The body of one SetWatches request."""
    parts = [jute.LONG.pack(last_zxid)]
    for kind in (DATA, EXIST, CHILD):
        parts.append(jute.pack_int(len(batch[kind])))
        parts += batch[kind]
    return b"".join(parts)
