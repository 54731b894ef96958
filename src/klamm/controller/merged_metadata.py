"""Merging many UpdateMetadata that wait for one broker into few that leave it with the same metadata.

A topic may be deleted and recreated under its name several times meanwhile. Kept are the deletions of earlier
partitions and the newest states of existing ones. Within a request a topic name occurs once, with one topic id.
"""

from collections.abc import Collection, Generator, Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from klamm.controller.control_requests import UpdateMetadataItem, joined_causes
from klamm.controller.topic import Partition
from klamm.model.leader_and_isr import LEADER_DURING_DELETE
from klamm.wire.messages import UpdateMetadataPartitionState

States: TypeAlias = dict[Partition, UpdateMetadataPartitionState]
"""The newest state of each partition."""
StatesByNumber: TypeAlias = dict[int, tuple[Partition, UpdateMetadataPartitionState]]
"""By partition number, a partition of a topic name and its state."""

SPARSE: Final = 4
"""Requests filled to less than 1/SPARSE on average are merged even if they name different partitions."""


def are_sparse(request_count: int, partition_count: int, max_partitions: int) -> bool:
    """Whether the requests have so few partitions on average that merging them saves many requests."""
    return partition_count < request_count * max_partitions // SPARSE


class _TopicIncarnations:
    """The states queued for topics that had one name in turn; by partition number, the newest state counts."""

    def __init__(self) -> None:
        self.earlier: StatesByNumber = {}
        """Deletions from before the last recreation."""
        self.gone: StatesByNumber = {}
        self.living: StatesByNumber = {}

    def add(self, partition: Partition, state: UpdateMetadataPartitionState) -> None:
        """Add a queued state; call in the order in which the states were queued."""
        number = partition.partition
        goes = state.leader == LEADER_DURING_DELETE
        if self.gone and (not goes or self.gone.get(number, (partition,))[0] is not partition):
            self.earlier |= self.gone
            self.gone = {}
        if goes:
            self.living.pop(number, None)
            self.earlier.pop(number, None)
            self.gone[number] = partition, state
        else:
            self.living[number] = partition, state


def merge_metadata(metadata: list[UpdateMetadataItem], max_partitions: int) -> Iterator[UpdateMetadataItem | int]:
    """Merge requests into ones of at most `max_partitions`.

    Yields merged requests, and between them the number of partitions processed since the last yield.
    """
    send_groups = {item.send_group for item in metadata}
    if len(metadata) < 2 or (len(send_groups) == 1 and None not in send_groups):
        yield from metadata  # nothing to merge, and looking for it holds the loop
        return
    lives, newest = yield from _group_by_incarnation(metadata)
    earlier = _states(each.earlier for each in lives)
    gone = _states(each.gone for each in lives)
    living = _states(each.living for each in lives)
    newest |= gone
    partition_count = sum(len(item.states) for item in metadata)
    if len(earlier) + len(newest) + len(living) == partition_count and not are_sparse(
        len(metadata), partition_count, max_partitions
    ):
        yield from metadata  # nothing to merge: as they are, brokers share what is encoded
        return
    causes = joined_causes(metadata)
    version = metadata[-1].broker_list_version
    if not partition_count:
        yield UpdateMetadataItem({}, causes, version)  # the list of brokers
    for states, deletes in ((earlier, True), (newest, bool(gone)), (living, False)):
        left = iter(states.items())
        while part := dict(islice(left, max_partitions)):
            yield UpdateMetadataItem(part, causes, version, deletes)
            yield len(part)


def _group_by_incarnation(
    metadata: list[UpdateMetadataItem],
) -> Generator[int, None, tuple[Collection[_TopicIncarnations], States]]:
    """Separate states of names under which a topic was deleted from the newest states of all others."""
    names: set[str] = set()
    for item in metadata:
        if item.deletes:
            names.update(p.topic for p, state in item.states.items() if state.leader == LEADER_DURING_DELETE)
            yield len(item.states)
    lives = {name: _TopicIncarnations() for name in sorted(names)}
    newest: States = {}
    for item in metadata:
        yield len(item.states)
        if not names:
            newest.update(item.states.items())
            continue
        for p, state in item.states.items():
            if p.topic in names:
                lives[p.topic].add(p, state)
            else:
                newest[p] = state
    return lives.values(), newest


def _states(incarnations: Iterable[StatesByNumber]) -> States:
    """Return the partition states of these topics in one dict by partition."""
    return {p: state for each in incarnations for p, state in each.values()}
