"""Loading the groups of a partition that this broker leads now, and giving up those that it led.

Source: GroupMetadataManager.loadGroupsAndOffsets, removeGroupsAndOffsets (3.9). An instruction of an older leader epoch
that comes late is ignored (KAFKA-10614).
"""

import asyncio

import structlog

from klamm.coordinator.context import CoordinatorContext
from klamm.coordinator.group import Group
from klamm.coordinator.groups import Loading
from klamm.coordinator.handlers import rebalance
from klamm.coordinator.loaded_groups import LoadedGroups
from klamm.coordinator.ports import OffsetsLog
from klamm.coordinator.requests import JoinResult, SyncResult
from klamm.coordinator.states import DEAD
from klamm.model.errors import ErrorCode, KlammError
from klamm.runtime.disk import Buffer
from klamm.runtime.time_slices import Slices
from klamm.wire.records import BatchHeader, CorruptRecords, batches

log = structlog.get_logger("groups")


class Ownership:
    """One partition is loaded after the other, so that a broker that leads all of them holds one piece at a time."""

    def __init__(self, context: CoordinatorContext, offsets_log: OffsetsLog, slices: Slices) -> None:
        self._context = context
        self._log = offsets_log
        self._slices = slices
        self._one_at_a_time = asyncio.Lock()

    def elected(self, number: int, epoch: int) -> None:
        """This broker leads the partition: load it, unless it led it already."""
        partition = self._context.groups.partition(number)
        if partition.epoch is not None and epoch < partition.epoch:
            log.info(
                "leadership of an older leader epoch ignored",
                partition=f"__consumer_offsets-{number}",
                epoch=epoch,
                known=partition.epoch,
            )
            return
        partition.epoch = epoch
        if partition.is_owned or partition.loading is not None:
            return
        partition.loading = Loading(epoch)
        self._context.spawn(self._load(number, partition.loading))

    def resigned(self, number: int, epoch: int | None) -> None:
        """Another broker leads the partition, or its replica here is deleted: let its groups go.

        Without an epoch, from an old controller, it holds in any case.
        """
        partition = self._context.groups.partition(number)
        if epoch is not None and partition.epoch is not None and epoch < partition.epoch:
            log.info(
                "end of leadership of an older leader epoch ignored",
                partition=f"__consumer_offsets-{number}",
                epoch=epoch,
                known=partition.epoch,
            )
            return
        partition.epoch = partition.epoch if epoch is None else epoch
        partition.loading, partition.is_owned = None, False
        groups, partition.groups = partition.groups, {}
        for group in groups.values():
            self._unload(group)
        if groups:
            log.info("groups unloaded", partition=f"__consumer_offsets-{number}", epoch=epoch, groups=len(groups))

    def _unload(self, group: Group) -> None:
        """Tell whoever waits to look for the new coordinator."""
        self._context.groups.close_for_producers(group)
        group.move(DEAD, self._context.clock.now_ms())
        for member in group.members.values():
            group.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
            member.answer_sync(SyncResult(ErrorCode.NOT_COORDINATOR))
        group.stop_timers()

    async def _load(self, number: int, loading: Loading) -> None:
        """Load a partition, unless it is given up before that."""
        partition = self._context.groups.partition(number)
        async with self._one_at_a_time:
            loop = asyncio.get_running_loop()
            began = loop.time()
            loaded = LoadedGroups()
            try:
                await self._read_all(number, loading, loaded)
            except KlammError as error:  # as in Kafka, what was read counts
                log.error(
                    "cannot load all groups of a partition; those that were read are served",
                    partition=f"__consumer_offsets-{number}",
                    reason=str(error),
                    action="Repair the cause and restart this broker, or move the leadership of the partition.",
                )
            if partition.loading is not loading:
                return
            count = 0
            for group in loaded.take_groups(self._context.clock.now_ms()):
                await self._slices.checkpoint()
                if partition.loading is not loading:
                    return
                self._add(group)
                count += 1
            partition.loading, partition.is_owned = None, True
            duration_ms = (loop.time() - began) * 1000
            self._context.counts.partition_loads.observe(duration_ms)
            log.info(
                "groups loaded",
                partition=f"__consumer_offsets-{number}",
                epoch=partition.epoch,
                groups=count,
                ms=round(duration_ms),
            )

    async def _read_all(self, number: int, loading: Loading, loaded: LoadedGroups) -> None:
        """Read from the log start to the log end, which may move meanwhile. Raises KlammError."""
        bounds = self._log.bounds(number)
        offset = 0 if bounds is None else bounds.start
        groups = self._context.groups
        while bounds is not None and offset < bounds.end and groups.partition(number).loading is loading:
            piece = await self._log.read(number, offset, self._context.settings.offsets_load_buffer_size)
            before = offset
            for header in batches(piece):
                await self._slices.checkpoint(max(header.record_count, 1))
                if header.last_offset >= offset:
                    self._add_batch(number, loaded, piece, header)
                    offset = header.next_offset
            if offset == before:
                log.error(
                    "loading groups ends early: there is no batch at an offset below the log end",
                    partition=f"__consumer_offsets-{number}",
                    offset=offset,
                    log_end=bounds.end,
                    action="Check the disk, then restart this broker.",
                )
                return
            bounds = self._log.bounds(number)

    def _add_batch(self, number: int, loaded: LoadedGroups, piece: Buffer, header: BatchHeader) -> None:
        try:
            loaded.add_batch(piece, header)
        except CorruptRecords as error:
            loaded.skipped += 1
            log.error(
                "corrupt batch skipped while loading groups: its groups and offsets may be older than committed",
                partition=f"__consumer_offsets-{number}",
                reason=str(error),
                action="Check the disk.",
            )

    def _add(self, group: Group) -> None:
        """Put a loaded group in charge: its members have a full session to show that they live."""
        context = self._context
        if context.groups.add(group) is not group:
            return
        context.groups.open_for_producers(group)
        if len(group.members) > context.settings.group_max_size:
            rebalance.prepare(context, group, f"loaded with more members than group.max.size: {len(group.members)}")
        for member in group.members.values():
            context.sessions.restart(group, member)
