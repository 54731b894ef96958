"""Encodes partition states for requests that have whole topics (`whole_topics.py`).

A partition's state begins with the same bytes in LeaderAndIsr and UpdateMetadata: number, leader, epochs, ISR and
replicas (LeaderAndIsrRequest.json, UpdateMetadataRequest.json of Kafka 3.9). They are packed here, and a standby does
it before its election. What follows them is equal for most partitions, and is taken from the encoding of one state.
"""

import struct
from collections.abc import Iterable
from typing import Any, Final

from klamm.controller.settings import ControllerSettings
from klamm.controller.topic import Partition
from klamm.model.ids import BrokerId
from klamm.wire.api import ApiKey, api
from klamm.wire.messages import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from klamm.wire.source import uvarint

_FIRST_LEADER_AND_ISR: Final = 2
_FIRST_UPDATE_METADATA: Final = 5
"""The first versions that group partitions by topic."""
_SAMPLE: Final = (11, 12, 13, 14, (15,), 16, (17, 18))
"""The common fields of a state of which only what follows them is used."""
_MAX_SUFFIXES: Final = 4096

Ids = tuple[BrokerId, ...]


class StateEncoder:
    """Encodes partition states in the versions in which control requests are sent."""

    def __init__(self, settings: ControllerSettings) -> None:
        versions = settings.versions
        are_flexible = {
            versions.leader_and_isr >= api(ApiKey.LEADER_AND_ISR).first_flexible,
            versions.update_metadata >= api(ApiKey.UPDATE_METADATA).first_flexible,
        }
        self.has_recovery_state = settings.writes_recovery_state
        self.encodes_topics = (
            len(are_flexible) == 1
            and versions.leader_and_isr >= _FIRST_LEADER_AND_ISR
            and versions.update_metadata >= _FIRST_UPDATE_METADATA
        )
        """Whether these versions group partitions by topic, and encode lengths alike; others are not encoded here."""
        self._versions = versions
        self._is_flexible = True in are_flexible
        self._packs: dict[tuple[int, int], tuple[Any, bytes, bytes]] = {}
        """By the numbers of ISR members and of replicas: the function that packs, and both encoded lengths."""
        self._leader_and_isr_suffixes: dict[tuple[Ids, Ids, int], bytes] = {}
        self._metadata_suffixes: dict[Ids, bytes] = {}

    def prepare(self, partitions: Iterable[Partition]) -> None:
        """Pack the common fields of these partitions before they are needed. Each of them must have a state."""
        if self.encodes_topics:
            for p in partitions:
                p.encoded = self.common(p)

    def common(self, partition: Partition) -> bytes:
        """The bytes with which the partition's state begins in LeaderAndIsr and UpdateMetadata."""
        leadership = partition.leadership
        assert leadership is not None, f"{partition} has no leadership to encode"
        leader, leader_epoch, isr, controller_epoch, partition_epoch, _ = leadership
        replicas = partition.announced.replicas
        pack, isr_length, replicas_length = self._packs.get((len(isr), len(replicas))) or self._make_pack(isr, replicas)
        packed: bytes = pack(
            partition.partition, controller_epoch, leader, leader_epoch, isr_length, *isr,
            partition_epoch, replicas_length, *replicas,
        )  # fmt: skip
        return packed

    def leader_and_isr_suffix(self, adding: Ids, removing: Ids, recovery: int) -> bytes:
        """What follows the common bytes in a LeaderAndIsr whose replica is not new."""
        recovery = recovery if self.has_recovery_state else 0
        made = self._leader_and_isr_suffixes.get((adding, removing, recovery))
        if made is None:
            sample = LeaderAndIsrPartitionState("", *_SAMPLE, adding, removing, False, recovery)
            version = self._versions.leader_and_isr
            [whole] = LeaderAndIsrRequest.encode_elements(LeaderAndIsrPartitionState, [sample], version)
            made = self._without_common(whole)
            _remember(self._leader_and_isr_suffixes, (adding, removing, recovery), made)
        return made

    def metadata_suffix(self, offline: Ids) -> bytes:
        """What follows the common bytes in an UpdateMetadata."""
        made = self._metadata_suffixes.get(offline)
        if made is None:
            sample = UpdateMetadataPartitionState("", *_SAMPLE, offline)
            version = self._versions.update_metadata
            [whole] = UpdateMetadataRequest.encode_elements(UpdateMetadataPartitionState, [sample], version)
            made = self._without_common(whole)
            _remember(self._metadata_suffixes, offline, made)
        return made

    def _without_common(self, sample: bytes) -> bytes:
        """What follows the common bytes in the encoding of the sample."""
        *numbers, isr, epoch, replicas = _SAMPLE
        pack, isr_length, replicas_length = self._make_pack(isr, replicas)
        common = pack(*numbers, isr_length, *isr, epoch, replicas_length, *replicas)
        assert sample.startswith(common), f"a partition's encoding {sample.hex()} does not begin with {common.hex()}"
        return sample[len(common) :]

    def _make_pack(self, isr: Any, replicas: Any) -> tuple[Any, bytes, bytes]:
        """Make and remember what packs the common fields of partitions with arrays of these lengths."""
        lengths = [uvarint(len(a) + 1) if self._is_flexible else struct.pack(">i", len(a)) for a in (isr, replicas)]
        first, second = map(len, lengths)
        pack = struct.Struct(f">iiii{first}s{len(isr)}ii{second}s{len(replicas)}i").pack
        made = pack, lengths[0], lengths[1]
        _remember(self._packs, (len(isr), len(replicas)), made)
        return made


def _remember(known: dict[Any, Any], key: Any, made: Any) -> None:
    """Cache the encoded value under its key; the cache is not extended beyond a limit."""
    if len(known) < _MAX_SUFFIXES:
        known[key] = made
