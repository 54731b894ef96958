"""The interface for observers of a controller: simulations and tests; production uses none."""

from collections.abc import Iterable

from klamm.controller.context import Partition
from klamm.controller.control_requests import ControlItem
from klamm.controller.events import Event
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term_context import TermContext
from klamm.model.ids import BrokerId


class Observer:
    """Is notified at once, in the controller's task, and must not change anything. This class ignores all calls."""

    def on_term_begin(self, term: TermContext) -> None:
        """The election is won; the context is still empty."""

    def on_term_end(self, term: TermContext) -> None:
        """The controller resigned; nothing in `term` may have an effect any more."""

    def on_event_begin(self, event: Event, waiting: Iterable[Event]) -> None:
        """Handling of `event` begins; `waiting` are the events queued behind it."""

    def on_event_failed(self, event: Event) -> None:
        """The event failed: an error of ZooKeeper, a lost controllership, or a defect. `on_event_end` follows."""

    def on_event_end(self, event: Event) -> None:
        """Handling of `event` ended, and its caller has an answer."""

    def on_unexpected_error(self, error: Exception) -> None:
        """A programming error occurred; the controller resigns and goes on."""

    def on_partition_transition(self, partition: Partition, before: PartitionState, after: PartitionState) -> None:
        """A partition entered another state."""

    def on_replica_transition(
        self, broker: BrokerId, partition: Partition, before: ReplicaState, after: ReplicaState
    ) -> None:
        """A replica entered a state; `before` may be the same state."""

    def on_request_queued(self, broker: BrokerId, item: ControlItem) -> None:
        """A control request was handed to the broker's channel."""
