"""In-sync replicas."""

from klamm.sim.history import History
from klamm.sim.trace import StateWritten


def isr_is_never_empty(history: History, event: StateWritten) -> str | None:
    """The last member stays, even where nobody leads."""
    return None if event.after.isr else f"{event.partition}: empty ISR"


def isr_is_within_replicas(history: History, event: StateWritten) -> str | None:
    """The ISR holds replicas of the partition and nobody else."""
    if not set(event.after.isr) <= set(event.replicas):
        return f"{event.partition}: ISR {event.after.isr} is not within replicas {event.replicas}"
    return None
