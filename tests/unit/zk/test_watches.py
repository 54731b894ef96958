"""Which watches an event spends, as ZooKeeper's own client has it (ZKWatchManager)."""

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
def test_an_event_spends_its_kinds_of_watch_on_that_path_alone(event: EventType, kind: WatchKind) -> None:
    watches = Watches()
    watches.add(kind, "/a")
    watches.add(kind, "/a")
    watches.add(kind, "/b")

    watches.fire(WatchEvent(event, "/a"))
    watches.fire(WatchEvent(event, "/unwatched"))

    assert len(watches) == (1 if kind in SPENT[event] else 2)


def test_nothing_to_set_again() -> None:
    assert list(Watches().set_again(5, 1000)) == []
