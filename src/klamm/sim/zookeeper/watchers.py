"""The watches of one server: who watches which path. Source: WatchManager.java, DataTree.setWatches."""

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from klamm.sim.zookeeper.tree import Tree, parent_of
from klamm.zk.watches import EventType, WatchEvent

W = TypeVar("W")


class Watchers(Generic[W]):
    """One-shot watches on data (or absence) and on children, and lasting ones on subtrees.

    A watcher has at most one of each kind per path.
    """

    def __init__(self) -> None:
        self.data: dict[str, dict[W, None]] = {}
        self.children: dict[str, dict[W, None]] = {}
        self.subtrees: dict[str, dict[W, None]] = {}
        self._watching: set[W] = set()
        """Whoever watches something, or did."""

    def watch_data(self, path: str, watcher: W) -> None:
        """Set a watch of the client on the content of the znode."""
        self.data.setdefault(path, {})[watcher] = None
        self._watching.add(watcher)

    def watch_children(self, path: str, watcher: W) -> None:
        """Set a watch of the client on the children of the znode."""
        self.children.setdefault(path, {})[watcher] = None
        self._watching.add(watcher)

    def watch_subtree(self, path: str, watcher: W) -> None:
        """Set a watch of the client on the znode and all znodes below it, which no event removes."""
        self.subtrees.setdefault(path, {})[watcher] = None
        self._watching.add(watcher)

    def watches_subtree(self, watcher: W) -> bool:
        """Whether this client watches a subtree."""
        return any(watcher in watchers for watchers in self.subtrees.values())

    def fire(self, event: WatchEvent) -> list[W]:
        """Remove the one-shot watches that this event triggers; return all watchers that it concerns, each once."""
        notified: dict[W, None] = {}
        if self.subtrees and event.type is not EventType.CHILDREN_CHANGED:
            notified |= self._watchers_above(event.path)
        if event.type is not EventType.CHILDREN_CHANGED:
            notified |= self.data.pop(event.path, {})
        if event.type in (EventType.DELETED, EventType.CHILDREN_CHANGED):
            notified |= self.children.pop(event.path, {})
        return list(notified)

    def _watchers_above(self, path: str) -> dict[W, None]:
        """Return the watchers of this path's subtree and of the subtree of each of its ancestors."""
        notified: dict[W, None] = {}
        while True:
            notified |= self.subtrees.get(path, {})
            if path == "/":
                return notified
            path = parent_of(path)

    def forget(self, watcher: W) -> None:
        """Remove all watches of a client whose connection is lost."""
        if watcher not in self._watching:
            return
        self._watching.remove(watcher)
        for table in (self.data, self.children, self.subtrees):
            for path in [p for p, watchers in table.items() if watcher in watchers]:
                del table[path][watcher]
                if not table[path]:
                    del table[path]

    def paths_of(self, watcher: W) -> tuple[list[str], list[str]]:
        """Paths that the watcher watches: (data watches, child watches), sorted."""
        return (
            sorted(p for p, w in self.data.items() if watcher in w),
            sorted(p for p, w in self.children.items() if watcher in w),
        )

    def restore_watches(
        self, tree: Tree, since: int, data: Sequence[str], exist: Sequence[str], child: Sequence[str], watcher: W
    ) -> Iterator[WatchEvent]:
        """Set watches again after a reconnection; yields an event for each path that changed since that zxid."""
        for path in data:
            node = tree.get(path)
            if node is None:
                yield WatchEvent(EventType.DELETED, path)
            elif node.mzxid > since:
                yield WatchEvent(EventType.DATA_CHANGED, path)
            else:
                self.watch_data(path, watcher)
        for path in exist:
            if tree.get(path) is not None:
                yield WatchEvent(EventType.CREATED, path)
            else:
                self.watch_data(path, watcher)
        for path in child:
            node = tree.get(path)
            if node is None:
                yield WatchEvent(EventType.DELETED, path)
            elif node.pzxid > since:
                yield WatchEvent(EventType.CHILDREN_CHANGED, path)
            else:
                self.watch_children(path, watcher)
