"""Mutants of requests about logs: offsets, leader epochs and sizes."""

from typing import Final

from tests.simulation.injected_bugs.mutant import Mutant, Patch

from klamm.broker.handlers.describe_log_dirs import DescribeLogDirs
from klamm.log.log import Log
from klamm.model.ids import BrokerId, TopicPartition
from klamm.replication.fetch_data import Isolation
from klamm.replication.offset_lookup import FoundOffset, look_up_offset
from klamm.replication.partition import NO_LEADER_EPOCH, Partition
from klamm.wire.messages import DescribeLogDirsPartition


def consumers_find_uncommitted_offsets(patch: Patch) -> None:
    """ListOffsets tells consumers the end of the log, above the high watermark."""

    def log_end(own_log: Log, isolation: Isolation, is_client: bool) -> int:
        return own_log.end_offset

    patch.setattr("klamm.replication.offset_lookup._visible_end", log_end)


def lookups_check_no_epoch(patch: Patch) -> None:
    """ListOffsets is answered whatever leader epoch the client knows."""

    async def look_up(
        partition: Partition, timestamp: int, replica_id: BrokerId, isolation: Isolation, current_leader_epoch: int
    ) -> FoundOffset:
        return await look_up_offset(partition, timestamp, replica_id, isolation, NO_LEADER_EPOCH)

    patch.setattr("klamm.replication.replica_manager.look_up_offset", look_up)


def sizes_are_wrong(patch: Patch) -> None:
    """DescribeLogDirs leaves a part of each log out of its size."""
    describe = DescribeLogDirs._describe_log

    def smaller(
        self: DescribeLogDirs, partition: TopicPartition, log: Log, is_future: bool
    ) -> DescribeLogDirsPartition:
        described = describe(self, partition, log, is_future)
        described.partition_size //= 2
        return described

    patch.setattr(DescribeLogDirs, "_describe_log", smaller)


MUTANTS: Final = (
    Mutant("lk1", "", "consumers find uncommitted offsets", consumers_find_uncommitted_offsets, (82,)),
    Mutant("lk2", "KIP-320", "lookups check no leader epoch", lookups_check_no_epoch, (82,)),
    Mutant("lk3", "KIP-113", "sizes of logs are wrong", sizes_are_wrong, (82,)),
)
