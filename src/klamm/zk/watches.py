"""Which one-shot watches a session has set, and how to set them again elsewhere. Source: ZKWatchManager.java."""

from collections.abc import Iterator
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from klamm.zk import jute


class WatchKind(StrEnum):
    DATA = "data"  # the znode exists: fires when it is changed or deleted
    EXIST = "exist"  # it does not: fires when it is created
    CHILD = "child"  # fires when a child comes or goes, or the znode itself goes


class EventType(IntEnum):
    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class WatchEvent(NamedTuple):
    type: EventType
    path: str


DATA, EXIST, CHILD = WatchKind

SPENT_BY: Final = {
    EventType.CREATED: (DATA, EXIST),
    EventType.DATA_CHANGED: (DATA, EXIST),
    EventType.DELETED: (DATA, EXIST, CHILD),
    EventType.CHILDREN_CHANGED: (CHILD,),
}


class Watches:
    """Watches are remembered as they are set by replies and forgotten as they fire."""

    __slots__ = ("_paths",)

    def __init__(self) -> None:
        self._paths: dict[WatchKind, dict[str, None]] = {kind: {} for kind in WatchKind}

    def __len__(self) -> int:
        return sum(map(len, self._paths.values()))

    def add(self, kind: WatchKind, path: str) -> None:
        self._paths[kind][path] = None

    def fire(self, event: WatchEvent) -> None:
        """Remove the watches on the event's path that this event triggers."""
        for kind in SPENT_BY[event.type]:
            self._paths[kind].pop(event.path, None)

    def set_again(self, last_zxid: int, max_bytes: int) -> Iterator[bytes]:
        """Bodies of SetWatches requests, each of at most about `max_bytes`; none where no watch is set.

        SetWatches suffices: SetWatches2 adds only the persistent watches, which this client does not set.
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
    parts = [jute.LONG.pack(last_zxid)]
    for kind in (DATA, EXIST, CHILD):
        parts.append(jute.pack_int(len(batch[kind])))
        parts += batch[kind]
    return b"".join(parts)
