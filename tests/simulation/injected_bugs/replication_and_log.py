"""Mutants that each remove a guard of replication or log; numbers are those of the catalogue of historic bugs."""

from typing import Any, Final

from tests.simulation.injected_bugs.mutant import Mutant, Patch

from klamm.log import loader
from klamm.log.epochs import LeaderEpochs
from klamm.log.log import Log
from klamm.replication import fetcher, isr, isr_changes, partition, partition_fetch_state, partition_reads
from klamm.replication.partition import Partition


def truncates_to_high_watermark(patch: Patch) -> None:
    """A new follower cuts its log at its high watermark instead of asking where the leader's epoch ends."""
    init = partition_fetch_state.PartitionFetchState.__init__

    def begin(self: Any, following: Partition, leader_epoch: int) -> None:
        init(self, following, leader_epoch)
        own_log = following.hosted_log
        own_log.truncate_to(own_log.high_watermark)
        self.continue_from(own_log.end_offset)

    patch.setattr(partition_fetch_state.PartitionFetchState, "__init__", begin)


def fetches_without_epoch(patch: Patch) -> None:
    """Followers do not say in which epoch their last record was written: nobody finds a divergence."""
    patch.setattr(partition_reads, "_find_divergence", lambda *_: None)


def leader_epochs_not_checked(patch: Patch) -> None:
    """A leader serves requests of older and newer leader epochs."""
    patch.setattr(Partition, "check_leader_epoch", lambda self, epoch: None)


def joins_at_the_high_watermark(patch: Patch) -> None:
    """A follower enters the ISR below the start of the leader's epoch."""
    may_join = isr.may_join

    def ignoring_epoch(state: Any, replica: Any, **facts: Any) -> bool:
        return may_join(state, replica, **{**facts, "epoch_start_offset": 0})

    patch.setattr(isr_changes, "may_join", ignoring_epoch)


def joins_at_once(patch: Patch) -> None:
    """A follower enters the ISR with its first fetch."""
    may_join = isr.may_join

    def at_once(state: Any, replica: Any, **facts: Any) -> bool:
        return may_join(state, replica, **{**facts, "epoch_start_offset": 0, "high_watermark": 0})

    patch.setattr(isr_changes, "may_join", at_once)


def epoch_start_not_recorded(patch: Patch) -> None:
    """Epoch entries are not written."""
    patch.setattr(LeaderEpochs, "assign", lambda self, epoch, start_offset: None)


def high_watermark_of_the_leader(patch: Patch) -> None:
    """The high watermark is the leader's log end, whoever has the records."""
    patch.setattr(partition, "next_high_watermark", lambda state, replicas, leader_end, **_: leader_end)


def high_watermark_under_min_isr(patch: Patch) -> None:
    """The high watermark moves with too few replicas in sync, and acks=all is accepted."""
    patch.setattr(Partition, "is_under_min_isr", property(lambda self: False))


def stale_divergence_applied(patch: Patch) -> None:
    """What a response says is applied to partitions that are not followed any more."""
    patch.setattr(fetcher.Fetcher, "_is_current", lambda self, topic_partition, followed: True)


def never_syncs_before_ack(patch: Patch) -> None:
    """klamm.sync.before.ack is ignored: a record is acknowledged before it is on the device."""
    patch.setattr(Log, "syncs_before_ack", property(lambda self: False))


def gaps_survive_recovery(patch: Patch) -> None:
    """Recovery goes on behind missing offsets."""
    patch.setattr(loader.Loader, "_check_gap", lambda self, rebuilt, segment, limit: None)
    patch.setattr(loader.Loader, "_remove_empty_end", lambda self, segments, end: None)


MUTANTS: Final = (
    Mutant("43", "KAFKA-1211", "a new follower truncates to its high watermark", truncates_to_high_watermark, (58, 64)),
    Mutant("44", "KAFKA-6361", "a leader does not look for divergence", fetches_without_epoch, (58, 63)),
    Mutant("45", "KAFKA-7395", "leader epochs of fetches are not checked", leader_epochs_not_checked, (58, 66)),
    Mutant("46", "KAFKA-7128", "a follower joins below the leader's epoch", joins_at_the_high_watermark, (62, 58)),
    Mutant("46a", "KAFKA-7128", "a follower joins with its first fetch", joins_at_once, (62, 58)),
    Mutant("48", "KAFKA-7415", "the start of a leader epoch is not recorded", epoch_start_not_recorded, (65, 63, 58)),
    Mutant("50", "KAFKA-13091", "the high watermark is the leader's log end", high_watermark_of_the_leader, (58, 74)),
    Mutant("53", "KAFKA-15583", "min.insync.replicas is ignored", high_watermark_under_min_isr, (74,)),
    Mutant("49", "KAFKA-7786", "responses of earlier leader epochs are applied", stale_divergence_applied, (64, 42)),
    Mutant("60", "KAFKA-3919", "recovery goes on behind a gap", gaps_survive_recovery, (70, 53, 58)),
    Mutant("h", "", "klamm.sync.before.ack is ignored", never_syncs_before_ack, (48, 58)),
)
