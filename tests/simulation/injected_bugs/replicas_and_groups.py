"""Mutants that only some clients notice, or a look at every replica: of new replicas, recreated topics, and groups."""

from typing import Any, Final

from tests.simulation.injected_bugs.mutant import Mutant, Patch

from klamm.coordinator.committed_offsets import GroupOffsets
from klamm.coordinator.group import Group
from klamm.log.cleaner import rewritten
from klamm.log.cleaner.transactions import TransactionCleaning
from klamm.log.log import Log
from klamm.log.manager import LogManager
from klamm.model.ids import TopicPartition
from klamm.replication.fetcher import Fetcher
from klamm.zk.registrar import BrokerRegistrar


def new_replicas_begin_at_the_high_watermark(patch: Patch) -> None:
    """A follower without records does not copy those that are committed already."""
    append = Fetcher._append_records

    def skip_committed(self: Fetcher, tp: TopicPartition, followed: Any, answer: Any) -> None:
        if followed.fetch_offset or not answer.high_watermark or followed.partition.hosted_log.end_offset:
            append(self, tp, followed, answer)
            return
        followed.partition.restart_at(answer.high_watermark)
        followed.continue_from(answer.high_watermark)
        self._session.set_position(tp, followed.position())

    patch.setattr(Fetcher, "_append_records", skip_committed)


def new_logs_take_the_files_of_deleted_ones(patch: Patch) -> None:
    """A log that is created begins with the records of a deleted one of the same name."""
    open_one = LogManager._open_one

    def take_deleted(self: LogManager, request: Any, home: Any) -> Any:
        disk, path = self._world.disk, f"{home.path}/{request.partition}"
        for name in sorted(disk.list_directory(home.path)):
            if name.startswith(f"{request.partition}.") and name.endswith("-delete"):
                disk.rename(f"{home.path}/{name}", path)
                disk.remove(f"{path}/partition.metadata")
                break
        return open_one(self, request, home)

    patch.setattr(LogManager, "_open_one", take_deleted)


def followers_name_no_aborted_transactions(patch: Patch) -> None:
    """A follower's response to a consumer of committed data does not say which transactions were aborted."""
    append, aborted_in = Log.append_as_follower, Log.aborted_in
    followers = set[int]()

    def note(self: Log, records: Any) -> Any:
        followers.add(id(self))
        return append(self, records)

    patch.setattr(Log, "append_as_follower", note)
    patch.setattr(Log, "aborted_in", lambda self, *of: [] if id(self) in followers else aborted_in(self, *of))


def nodes_register_once(patch: Patch) -> None:
    """A node whose session expired takes itself for registered."""
    register = BrokerRegistrar.register

    async def once(self: BrokerRegistrar, client: Any, now_ms: int) -> int:
        return 7 if self._sessions else await register(self, client, now_ms)

    patch.setattr(BrokerRegistrar, "register", once)


def deleted_offsets_stay(patch: Patch) -> None:
    """Offsets that are to be deleted stay in the coordinator's memory."""
    patch.setattr(GroupOffsets, "remove", lambda self, partitions: list(partitions))


def static_members_lose_their_partitions(patch: Patch) -> None:
    """A static member that comes back has no partitions in the generation that goes on."""
    replace = Group.replace_static

    def empty(self: Group, instance_id: str, new_member_id: str) -> Any:
        member = replace(self, instance_id, new_member_id)
        member.assignment = b""
        return member

    patch.setattr(Group, "replace_static", empty)


def compaction_stores_compressed_records_as_plain(patch: Patch) -> None:
    """The cleaner does not compress records again, and says that it did."""
    patch.setattr(rewritten, "compress", lambda codec, content, level=None: content)


def compaction_forgets_aborted_transactions(patch: Patch) -> None:
    """The cleaner keeps records of aborted transactions, and their transactions are in no index any more."""
    patch.setattr(TransactionCleaning, "on_data", lambda self, header: False)
    patch.setattr(TransactionCleaning, "take_kept", lambda self: [])


MUTANTS: Final = (
    Mutant(
        "w1", "", "a new replica copies no committed records", new_replicas_begin_at_the_high_watermark, (58, 63, 62)
    ),
    Mutant(
        "w2", "KAFKA-12835", "a new log has a deleted one's records", new_logs_take_the_files_of_deleted_ones, (77,)
    ),
    Mutant("w3", "", "followers name no aborted transactions", followers_name_no_aborted_transactions, (51,)),
    Mutant("w4", "", "nodes register once", nodes_register_once, (36,)),
    Mutant("w5", "", "deleted offsets stay", deleted_offsets_stay, (57,)),
    Mutant("w6", "KIP-345", "a returning static member owns nothing", static_members_lose_their_partitions, (57,)),
    Mutant("w7", "", "compaction does not compress again", compaction_stores_compressed_records_as_plain, (48, 70, 73)),
    Mutant("w8", "", "compaction forgets what was aborted", compaction_forgets_aborted_transactions, (69, 75)),
)
