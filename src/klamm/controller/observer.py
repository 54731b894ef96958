"""Who may observe a controller at work: simulations, which check what they see, and tests; nobody in production."""

from collections.abc import Iterable

from klamm.controller.context import Partition
from klamm.controller.control_requests import ControlItem
from klamm.controller.events import Event
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.term_context import TermContext
from klamm.model.ids import BrokerId


class Observer:
    """Is notified of everything at the moment it happens, in the controller's own task; must not change anything.

    This one ignores it.
    """

    def on_term_begin(self, term: TermContext) -> None:
        """The election is won, the context still empty."""

    def on_term_end(self, term: TermContext) -> None:
        """The controller resigned: what `term` holds must be inert."""

    def on_event_begin(self, event: Event, waiting: Iterable[Event]) -> None:
        """`waiting`: what is queued behind it."""

    def on_event_failed(self, event: Event) -> None:
        """ZooKeeper failed in it, the controller was deposed, or it ran into a defect; its end is told next."""

    def on_event_end(self, event: Event) -> None:
        """Whoever waited has an answer."""

    def on_unexpected_error(self, error: Exception) -> None:
        """A defect; the controller goes on, having resigned."""

    def on_partition_transition(self, partition: Partition, before: PartitionState, after: PartitionState) -> None:
        """A partition entered another state."""

    def on_replica_transition(
        self, broker: BrokerId, partition: Partition, before: ReplicaState, after: ReplicaState
    ) -> None:
        """A replica entered a state, perhaps the one it was in."""

    def on_request_queued(self, broker: BrokerId, item: ControlItem) -> None:
        """A control request was handed to the broker's channel."""
