"""Many UpdateMetadata that wait for one broker become few, which leave it with the same knowledge.

A topic may be deleted and made again under its name any number of times meanwhile: what stays of that is the word that
earlier partitions went, and the newest of those that live. A name stands once in a request, under one topic id.
"""

from collections.abc import Collection, Generator, Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from klamm.controller.context import Partition
from klamm.controller.control_requests import UpdateMetadataItem, joined_causes
from klamm.model.leader_and_isr import LEADER_DURING_DELETE
from klamm.wire.messages import UpdateMetadataPartitionState

States: TypeAlias = dict[Partition, UpdateMetadataPartitionState]
Told: TypeAlias = dict[int, tuple[Partition, UpdateMetadataPartitionState]]

SPARSE: Final = 4


def are_sparse(requests: int, told: int, most: int) -> bool:
    """Requests that are filled to less than one part in so many are too many, whatever they tell of."""
    return told < requests * most // SPARSE


class _TopicIncarnations:
    """What was told of one name under which a topic goes, in order; by partition number the newest counts."""

    def __init__(self) -> None:
        self.earlier: Told = {}
        """These went before the last life began."""
        self.gone: Told = {}
        self.living: Told = {}

    def add(self, partition: Partition, state: UpdateMetadataPartitionState) -> None:
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


def merge_metadata(metadata: list[UpdateMetadataItem], most: int) -> Iterator[UpdateMetadataItem | int]:
    """`most`: partitions in one request."""
    sendings = {item.sending for item in metadata}
    if len(metadata) < 2 or (len(sendings) == 1 and None not in sendings):
        yield from metadata  # nothing to merge, and looking for it holds the loop
        return
    lives, newest = yield from _sorted(metadata)
    earlier = _states(each.earlier for each in lives)
    gone = _states(each.gone for each in lives)
    living = _states(each.living for each in lives)
    newest |= gone
    told = sum(len(item.states) for item in metadata)
    if len(earlier) + len(newest) + len(living) == told and not are_sparse(len(metadata), told, most):
        yield from metadata  # nothing to merge: as they are, brokers share what is encoded
        return
    causes = joined_causes(metadata)
    version = metadata[-1].broker_list_version
    if not told:
        yield UpdateMetadataItem({}, causes, version)  # the list of brokers
    for states, deletes in ((earlier, True), (newest, bool(gone)), (living, False)):
        left = iter(states.items())
        while part := dict(islice(left, most)):
            yield UpdateMetadataItem(part, causes, version, deletes)
            yield len(part)


def _sorted(metadata: list[UpdateMetadataItem]) -> Generator[int, None, tuple[Collection[_TopicIncarnations], States]]:
    """The lives of topics that went, and the newest of all others."""
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
            newest.update(item.states)
            continue
        for p, state in item.states.items():
            if p.topic in names:
                lives[p.topic].add(p, state)
            else:
                newest[p] = state
    return lives.values(), newest


def _states(told: Iterable[Told]) -> States:
    return {p: state for each in told for p, state in each.values()}
