"""Which watches an event removes, as in ZooKeeper's own client (ZKWatchManager)."""

import pytest

from klamm.zk.watches import CHILD, DATA, EXIST, EventType, Watches, WatchEvent, WatchKind

SPENT = {
    EventType.CREATED: {DATA, EXIST},
    EventType.DATA_CHANGED: {DATA, EXIST},
    EventType.DELETED: {DATA, EXIST, CHILD},
    EventType.CHILDREN_CHANGED: {CHILD},
}


@pytest.mark.parametrize("event", EventType)
@pytest.mark.parametrize("kind", WatchKind)
def test_a_watch_event_removes_only_watches_of_its_path_and_event_type(event: EventType, kind: WatchKind) -> None:
    watches = Watches()
    watches.add(kind, "/a")
    watches.add(kind, "/a")
    watches.add(kind, "/b")

    watches.remove_triggered(WatchEvent(event, "/a"))
    watches.remove_triggered(WatchEvent(event, "/unwatched"))

    assert len(watches) == (1 if kind in SPENT[event] else 2)


def test_no_set_watches_request_is_built_without_watches() -> None:
    assert list(Watches().set_watches_bodies(5, 1000)) == []
