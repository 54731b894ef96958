"""Brokers: when they were registered, what their registrations said, and who left in order."""

from collections import defaultdict
from dataclasses import dataclass, field

from klamm.model.ids import BrokerId
from klamm.sim.history.trace import (
    NodeStopped,
    Position,
    RegistrationChanged,
    RegistrationWritten,
    RequestReceived,
    TransactionCommitted,
)
from klamm.sim.zookeeper.tree import CreateChange, SetChange
from klamm.zk.znodes import FEATURE


@dataclass(slots=True)
class RegistrationHistory:
    at: Position
    current: dict[BrokerId, tuple[int, int]] = field(default_factory=dict)
    """Broker -> (broker epoch, session) of its registration."""
    changes: dict[BrokerId, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """Broker -> (zxid, broker epoch) of each time its registration came, or went with -1 for an epoch."""
    contents: dict[BrokerId, dict[int, bytes | None]] = field(default_factory=lambda: defaultdict(dict))
    """Broker -> zxid -> what its registration said from then on."""
    features: dict[int, bytes | None] = field(default_factory=dict)
    """zxid -> what `/feature` said from then on."""
    version: int = 0
    """Rises with each change of registrations and features."""
    newest_run: dict[BrokerId, int] = field(default_factory=dict)
    """Broker -> its latest run that took an order."""
    stopped: set[tuple[BrokerId, int]] = field(default_factory=set)
    """(broker, incarnation) of those that left in order."""

    def epochs_since(self, broker: BrokerId, zxid: int, until: int | None = None) -> set[int]:
        """The broker's epochs at this zxid and later, up to zxid `until`; -1 where it was not registered."""
        epochs: set[int] = set()
        for at, epoch in reversed(self.changes.get(broker, ())):
            if until is None or at <= until:
                epochs.add(epoch)
            if at <= zxid:
                return epochs
        epochs.add(-1)
        return epochs

    def contents_since(self, broker: BrokerId, zxid: int) -> list[bytes | None]:
        """The contents of the broker's registration at this zxid and later; None where it had none."""
        return _contents_since(self.contents.get(broker, {}), zxid)

    def finalized_since(self, zxid: int) -> list[bytes | None]:
        """The contents of `/feature` at this zxid and later."""
        return _contents_since(self.features, zxid)

    def on_transaction(self, event: TransactionCommitted) -> None:
        """Record the new content of `/feature`."""
        for change in event.changes:
            if change.path == FEATURE and isinstance(change, CreateChange | SetChange):
                self.features[event.zxid] = change.data
                self.version += 1

    def on_changed(self, event: RegistrationChanged) -> None:
        """Record that a broker was registered, or its registration deleted."""
        self.version += 1
        self.changes[event.broker].append((self.at.zxid, event.epoch))
        if event.epoch < 0:
            self.current.pop(event.broker, None)
        else:
            self.current[event.broker] = event.epoch, event.session

    def on_written(self, event: RegistrationWritten) -> None:
        """Record the new content of a broker's registration."""
        self.version += 1
        self.contents[event.broker][self.at.zxid] = event.data

    def on_request_received(self, event: RequestReceived) -> None:
        """Record the newest process of the broker that accepted a control request."""
        if not event.refusal:
            self.newest_run[event.broker] = max(event.incarnation, self.newest_run.get(event.broker, 0))

    def on_stopped(self, event: NodeStopped) -> None:
        """Record that this process of the broker has shut down."""
        self.stopped.add((event.broker, event.incarnation))


def _contents_since(contents: dict[int, bytes | None], zxid: int) -> list[bytes | None]:
    """The content of a znode at `zxid` and each later one; None where it was deleted. `contents` is keyed by zxid."""
    current = max((written_at for written_at in contents if written_at <= zxid), default=0)
    return [content for written_at, content in contents.items() if written_at >= current]
