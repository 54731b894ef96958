"""Which brokers get the replicas of a new topic. Source: AdminUtils.assignReplicasToBrokers (3.9), rules only.

Leaders go round the brokers from a random one; the other replicas of a partition follow at a distance that grows by
one each round, so that two brokers share only a few partitions. With racks, replicas are spread over racks first.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from klamm.model.brokers import Broker
from klamm.model.ids import BrokerId
from klamm.runtime.randomness import Rng

Placement = dict[int, tuple[BrokerId, ...]]
Racks = dict[BrokerId, str | None]
"""The live brokers that may get replicas."""


def eligible_racks(brokers: Iterable[Broker], left_out: Collection[BrokerId]) -> Racks:
    """The racks of the brokers that may get replicas."""
    return {b.id: b.rack for b in brokers if b.id not in left_out}


class PlacementRefused(ValueError):
    """No placement is possible; the text says why."""


def place_replicas(
    brokers: Mapping[BrokerId, str | None], partitions: int, replication_factor: int, rng: Rng
) -> Placement:
    """Choose replicas for each partition as Kafka does, the preferred leader first.

    `brokers` are the live ones with their racks. Raises PlacementRefused where there are too few brokers, or only some
    of them have a rack.
    """
    racks = _check_racks(brokers, replication_factor)
    start, shift = rng.randrange(len(brokers)), rng.randrange(len(brokers))
    return _place_replicas(brokers, racks, range(partitions), replication_factor, start, shift)


def place_more_replicas(
    brokers: Mapping[BrokerId, str | None], partitions: range, replication_factor: int, first: BrokerId
) -> Placement:
    """Choose replicas for added partitions; leaders rotate over the brokers from `first`, the leader of partition 0.

    Raises as `place_replicas`.
    """
    racks = _check_racks(brokers, replication_factor)
    start = next((index for index, broker in enumerate(sorted(brokers)) if broker >= first), 0)
    return _place_replicas(brokers, racks, partitions, replication_factor, start, start)


def _check_racks(brokers: Mapping[BrokerId, str | None], replication_factor: int) -> dict[BrokerId, str]:
    """Racks by broker, empty where no broker has one. Raises PlacementRefused."""
    if replication_factor > len(brokers):
        raise PlacementRefused(
            f"replication factor {replication_factor} needs as many live brokers that may have replicas; there are"
            f" {len(brokers)}. Lower it, or start brokers."
        )
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    if racks and len(racks) != len(brokers):
        raise PlacementRefused(
            "some brokers have broker.rack set and some have not. Set it on all of them, or on none."
        )
    return racks


def _place_replicas(
    brokers: Mapping[BrokerId, str | None],
    racks: Mapping[BrokerId, str],
    partitions: range,
    replication_factor: int,
    start: int,
    shift: int,
) -> Placement:
    """Place replicas by rack where brokers have racks, else over all brokers."""
    if racks:
        return _place_over_racks(racks, partitions, replication_factor, start, shift)
    return _place_over_brokers(sorted(brokers), partitions, replication_factor, start, shift)


def _place_over_brokers(
    brokers: Sequence[BrokerId], partitions: range, replication_factor: int, start: int, shift: int
) -> Placement:
    """Kafka's placement without racks: the leader rotates, followers are shifted after each full rotation."""
    placement: Placement = {}
    count = len(brokers)
    followers = range(replication_factor - 1)
    for partition in partitions:
        if partition and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        others = [brokers[_follower_index(first, shift, j, count)] for j in followers]
        placement[partition] = (brokers[first], *others)
    return placement


def _follower_index(first: int, shift: int, replica: int, count: int) -> int:
    """The index of the broker for a follower when the leader is at `first`; never `first` itself."""
    return (first + 1 + (shift + replica) % (count - 1)) % count


def _place_over_racks(
    racks: Mapping[BrokerId, str], partitions: range, replication_factor: int, start: int, shift: int
) -> Placement:
    """Kafka's placement with racks: as many racks as possible for each partition."""
    brokers = alternate_racks(racks)
    count, rack_count = len(brokers), len(set(racks.values()))
    placement: Placement = {}
    for partition in partitions:
        if partition and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        replicas = [brokers[first]]
        used_racks = {racks[brokers[first]]}
        tried = 0
        while len(replicas) < replication_factor:
            broker = brokers[_follower_index(first, shift * rack_count, tried, count)]
            tried += 1
            rack_is_full = racks[broker] in used_racks and len(used_racks) < rack_count
            if broker not in replicas and not rack_is_full:
                replicas.append(broker)
                used_racks.add(racks[broker])
        placement[partition] = tuple(replicas)
    return placement


def alternate_racks(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """The brokers in an order in which neighbours are in different racks, as far as that is possible."""
    by_rack = {rack: sorted(b for b, r in racks.items() if r == rack) for rack in sorted(set(racks.values()))}
    order: list[BrokerId] = []
    round_ = 0
    while len(order) < len(racks):
        order += [members[round_] for members in by_rack.values() if round_ < len(members)]
        round_ += 1
    return order
