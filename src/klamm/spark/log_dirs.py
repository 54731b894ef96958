"""The option logDirs: log directories answer what planning asks, without any broker."""

import logging
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from klamm.client.backoff import Backoff
from klamm.client.cluster import TopicGone
from klamm.client.leaders import OffsetAndEpoch
from klamm.client.offsets import EARLIEST, LATEST, NO_OFFSET
from klamm.client.truncations import Truncation
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from klamm.log.errors import BadLogDirectory
from klamm.log.replicas.directories import (
    StoredDirectory,
    StoredReplica,
    common_topic_id,
    most_advanced,
    read_directories,
    replicas_of,
    topic_id_of,
)
from klamm.log.replicas.offsets import StoredOffsets
from klamm.log.replicas.reader import ReplicaGone
from klamm.model.errors import ErrorCode
from klamm.model.ids import TopicPartition
from klamm.model.topic_ids import ZERO_ID
from klamm.runtime.blocking import BlockingWorld
from klamm.runtime.disk import Disk
from klamm.spark.errors import BadOption
from klamm.spark.options import ReadOptions
from klamm.spark.ranges import OffsetRange
from klamm.wire.messages import MetadataResponsePartition, MetadataResponseTopic

_LOG: Final = logging.getLogger("klamm.spark")


class LogDirs:
    """The transport of a read from log directories. Of each partition the replica is chosen that is most advanced.

    `topics` lists the directories; `offsets` then looks at the files as they are, up to the high watermarks of that
    listing. Raises BadOption for directories that cannot be read, CorruptFile and CorruptRecords for damaged files.
    """

    def __init__(self, world: BlockingWorld, disk: Disk, options: ReadOptions) -> None:
        self.world = world
        self.options = options
        self.topic_ids: dict[str, uuid.UUID] = {}
        self._disk = disk
        self._directories: Sequence[StoredDirectory] = ()
        self.replicas: Mapping[TopicPartition, Sequence[StoredReplica]] = {}
        """Of each partition, as the directories were listed last."""

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster, as meta.properties says."""
        return next((d.cluster_id for d in self._directories if d.cluster_id is not None), None)

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def backoff(self, total_s: float) -> Backoff:
        """Return a backoff whose retries end after `total_s` seconds."""
        return Backoff(self.world.now_s, total_s, self.options.backoff_s, self.options.max_backoff_s)

    def topics(self, names: Collection[str] | None) -> dict[str, MetadataResponseTopic]:
        """List the directories; return the named topics, or all, in order of names; unknown ones have an error code.

        Topics that the options do not include are returned without an id.
        """
        self.refresh()
        by_topic: dict[str, list[StoredReplica]] = {}
        for partition, replicas in self.replicas.items():
            by_topic.setdefault(partition.topic, []).extend(replicas)
        wanted = by_topic if names is None else names
        return {name: self._topic(name, by_topic.get(name, ())) for name in sorted(wanted)}

    def refresh(self) -> None:
        """List the directories again. Raises BadOption."""
        try:
            self._directories = read_directories(self._disk, self.options.log_dirs)
        except BadLogDirectory as error:
            raise BadOption(f"option logDirs: {error}") from error
        self.replicas = replicas_of(self._directories)

    def offsets(
        self, times: Mapping[TopicPartition, int], read_committed: bool | None = None
    ) -> dict[TopicPartition, int]:
        """The partitions' offsets for these times, as brokers would tell them. Raises TopicGone."""
        committed = self.options.read_committed if read_committed is None else read_committed
        return {p: self._offset(p, time, committed) for p, time in times.items()}

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        """The partitions' ends, without leader epochs. Raises TopicGone."""
        return {p: OffsetAndEpoch(end) for p, end in self.offsets(dict.fromkeys(partitions, LATEST)).items()}

    def see_epochs(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Do nothing: no leader is asked."""

    def truncations(
        self,
        positions: Mapping[TopicPartition, OffsetAndEpoch],  # noqa: ARG002  # as of other transports
    ) -> Mapping[TopicPartition, Truncation]:
        """Nothing: there is no leader that could tell."""
        return {}

    def sizes(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The bytes of the segments of these partitions."""
        found = {p: self.find(p) for p in partitions}
        return {p: StoredOffsets(self._disk, r, None).size() for p, r in found.items() if r is not None}

    def locate(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Each range with the replica to read, None where no directory has one any more."""
        return [r._replace(replica=self.find(r.topic_partition)) for r in ranges]

    def find(self, partition: TopicPartition) -> StoredReplica | None:
        """The replica of the partition that is most advanced, None where no directory has one."""
        replicas = self.replicas.get(partition)
        return most_advanced(replicas) if replicas else None

    def _replica(self, partition: TopicPartition) -> StoredReplica:
        """The replica to read. Raises TopicGone where no directory has one."""
        replica = self.find(partition)
        if replica is None:
            raise TopicGone(partition.topic, f"no directory of the option logDirs has {partition} any more")
        return replica

    def _offset(self, partition: TopicPartition, time: int, read_committed: bool) -> int:
        """The offset of one partition for this time. Raises TopicGone."""
        replica = self._replica(partition)
        self._check_topic_id(replica)
        if replica.high_watermark is None:
            self._on_no_high_watermark(replica)
        stored = StoredOffsets(self._disk, replica, self.topic_ids.get(partition.topic))
        try:
            if time == EARLIEST:
                return stored.log_start()
            end = stored.last_stable() if read_committed else stored.high_watermark()
            if time == LATEST:
                return end
            found = stored.at_time(time, end)
            return NO_OFFSET if found is None else found
        except ReplicaGone as gone:
            raise TopicGone(partition.topic, str(gone)) from gone

    def _check_topic_id(self, replica: StoredReplica) -> None:
        """Raise TopicGone where the topic was created again with another id."""
        name = replica.partition.topic
        expected, found = self.topic_ids.get(name), topic_id_of(self._disk, replica)
        if None not in (expected, found) and expected != found:
            raise TopicGone(
                name, f"topic {name} was deleted and created again: {replica.directory} has another topic id now"
            )

    def _on_no_high_watermark(self, replica: StoredReplica) -> None:
        """Warn that nothing is read of a partition that no checkpoint has yet. Raises BadOption without checkpoints."""
        if not self._disk.exists(replica.checkpoint):
            raise BadOption(
                f"option logDirs: there is no {replica.checkpoint}, so nobody knows which records are committed. "
                "A broker writes it every few seconds and when it stops: start the broker, or copy this file, too."
            )
        _LOG.warning(
            "nothing is read of %s: no file %s has its high watermark yet; a broker writes it every few seconds",
            replica.partition, replica.checkpoint,
        )  # fmt: skip

    def _topic(self, name: str, replicas: Iterable[StoredReplica]) -> MetadataResponseTopic:
        """The topic as brokers describe it, without leaders. Raises BadOption where replicas have two topic ids."""
        partitions = sorted({replica.partition for replica in replicas})
        if not partitions:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
        topic_id = None
        if any(map(self.options.subscription.includes, partitions)):
            try:
                topic_id = common_topic_id(self._disk, replicas)
            except BadLogDirectory as error:
                raise BadOption(f"option logDirs: {error}") from error
        return MetadataResponseTopic(
            name=name,
            topic_id=topic_id or ZERO_ID,
            is_internal=name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC),
            partitions=[MetadataResponsePartition(partition_index=p.partition) for p in partitions],
        )
