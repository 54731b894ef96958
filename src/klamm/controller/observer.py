"""The interface for observers of a controller: simulations and tests; production uses none."""

from collections.abc import Iterable

from klamm.controller.control_requests import ControlItem
from klamm.controller.events import Event
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.model.ids import BrokerId


class Observer:
    """Is notified at once, in the controller's task, and must not change anything. This class ignores all calls."""

    def on_term_begin(self, term: TermContext) -> None:
        """Called when this node has won the election; the context is still empty."""

    def on_term_end(self, term: TermContext) -> None:
        """Called when the controller has resigned; nothing in `term` may have an effect any more."""

    def on_event_begin(self, event: Event, waiting: Iterable[Event]) -> None:
        """Called before `event` is handled; `waiting` are the events queued after it."""

    def on_event_failed(self, event: Event) -> None:
        """Called when an event failed: a ZooKeeper error, a lost controllership, or a programming error.

        `on_event_end` follows.
        """

    def on_event_end(self, event: Event) -> None:
        """Called when an event is handled and its caller, if any, has an answer."""

    def on_unexpected_error(self, error: Exception) -> None:
        """Called after a programming error in a handler; the controller then resigns, and the node keeps running."""

    def on_context_read(self, since: int) -> None:
        """Called when a new term has brokers, topics and partition states as of the zxid `since` or later."""

    def on_partition_transition(self, partition: Partition, before: PartitionState, after: PartitionState) -> None:
        """Called when a partition changed from state `before` to `after`."""

    def on_replica_transition(
        self, broker: BrokerId, partition: Partition, before: ReplicaState, after: ReplicaState
    ) -> None:
        """Called when a replica entered the state `after`; `before` may be the same state."""

    def on_request_queued(self, broker: BrokerId, item: ControlItem) -> None:
        """Called when a control request was handed to the broker's channel."""
