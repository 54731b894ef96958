"""Where partitions and replicas may go next, as Kafka 3.9 has it: written down a second time, to compare."""

from typing import Final

from klamm.sim.history.history import History
from klamm.sim.history.trace import PartitionMoved, ReplicaMoved


def _parse_transitions(text: str) -> frozenset[tuple[str, str]]:
    """Pairs of states from a text such as `New>Online Online>Offline`."""
    pairs = (move.split(">") for move in text.split())
    return frozenset((before, after) for before, after in pairs)


_PARTITION_MOVES: Final = _parse_transitions(
    """NonExistent>New New>Online New>Offline Online>Online Online>Offline Offline>Online Offline>Offline
    Offline>NonExistent"""
)
_REPLICA_MOVES: Final = _parse_transitions(
    """NonExistent>New New>Online New>Offline Online>Online Online>Offline Offline>Online Offline>Offline
    DeletionIneligible>Online DeletionIneligible>Offline Offline>DeletionStarted Offline>DeletionIneligible
    DeletionStarted>DeletionSuccessful DeletionStarted>DeletionIneligible DeletionSuccessful>NonExistent"""
)


def partitions_move_legally(history: History, event: PartitionMoved) -> str | None:
    """A partition goes from state to state as the table of the partition state machine allows."""
    move = event.before.removesuffix("Partition"), event.after.removesuffix("Partition")
    return None if move in _PARTITION_MOVES else f"{event.partition}: {' to '.join(move)} in {event.term}"


def replicas_move_legally(history: History, event: ReplicaMoved) -> str | None:
    """A replica goes from state to state as the table of the replica state machine allows."""
    move = _short_state_name(event.before), _short_state_name(event.after)
    return None if move in _REPLICA_MOVES else f"{event.partition} on {event.broker}: {' to '.join(move)}"


def _short_state_name(state: str) -> str:
    return state.removesuffix("Replica").removeprefix("Replica")
