"""What changed, compared with the controller's memory: brokers, topics, partitions, and log directories that failed.

Source: processBrokerChange, processTopicChange, processPartitionModifications and
processLeaderAndIsrResponseReceived in KafkaController.scala (3.9).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from klamm.controller.context import ControllerContext
from klamm.controller.topic import Partition, Topic
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.zk.znodes import TopicZnode


class BrokerChanges(NamedTuple):
    """Brokers that registered, brokers that restarted unnoticed (bounced), and brokers that are gone."""

    new: tuple[Broker, ...]
    bounced: tuple[Broker, ...]  # restarted before their death was noticed
    dead: tuple[BrokerId, ...]

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.new or self.bounced or self.dead)


def diff_brokers(
    known: Mapping[BrokerId, Broker],
    current: Mapping[BrokerId, Broker],
    in_transition: Collection[BrokerId] = (),
) -> BrokerChanges:
    """Compare registrations; a known id with a newer epoch (czxid) is a bounce. Each result is in order of ids.

    `in_transition` has brokers whose last change was not handled to its end: they are reported again. One that was dead
    then and is registered now is reported as bounced, so that its death is handled as well.
    """
    new, bounced = [], []
    for b in sorted(current):
        is_newer = b in known and current[b].epoch > known[b].epoch
        if is_newer or (b in in_transition and b not in known):
            bounced.append(current[b])
        elif b in in_transition or b not in known:
            new.append(current[b])
    return BrokerChanges(
        tuple(new), tuple(bounced), tuple(b for b in sorted({*known, *in_transition}) if b not in current)
    )


class DirChanges(NamedTuple):
    """Partitions whose log directory on a broker failed, or works again."""

    offline: list[Partition]
    """Partitions whose directory was not known to have failed."""
    online: list[Partition]


def diff_offline_dirs(
    context: ControllerContext, broker: BrokerId, answers: Iterable[tuple[Partition, int]]
) -> DirChanges:
    """Find the replicas on this broker whose log directory newly failed or works again.

    `answers` are the error codes of a LeaderAndIsr response: KAFKA_STORAGE_ERROR means that the directory failed, NONE
    that it works; other codes change nothing.
    """
    known = context.offline_dirs.get(broker, {})
    changes = DirChanges([], [])
    for partition, code in answers:
        if code == ErrorCode.KAFKA_STORAGE_ERROR and partition not in known:
            changes.offline.append(partition)
        elif code == ErrorCode.NONE and partition in known:
            changes.online.append(partition)
    return changes


class TopicChanges(NamedTuple):
    """Names of topics that appeared and disappeared."""

    new: tuple[str, ...]
    deleted: tuple[str, ...]


def diff_topics(known: Mapping[str, Topic], listed: Collection[str]) -> TopicChanges:
    """Compare the known topics with those listed in ZooKeeper; both results are in order of names."""
    present = frozenset(listed)
    return TopicChanges(
        new=tuple(sorted(name for name in present if name not in known)),
        deleted=tuple(sorted(name for name in known if name not in present)),
    )


def added_partitions(topic: Topic, stored: Mapping[int, ReplicaAssignment]) -> dict[int, ReplicaAssignment]:
    """The stored partitions that are not known yet; changed replica lists of known ones are ignored."""
    return {number: assignment for number, assignment in sorted(stored.items()) if number not in topic.partitions}


def is_another_topic(known: Topic, found: TopicZnode) -> bool:
    """Whether the znode belongs to a topic that was recreated under the known topic's name.

    The znode's czxid differs then, or the topic id. A missing id says nothing, since old tools omit it.
    """
    has_another_id = None not in (known.id, found.topic_id) and known.id != found.topic_id
    return known.czxid != found.czxid or has_another_id
