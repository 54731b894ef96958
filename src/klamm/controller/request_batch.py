"""What an event wants to tell the brokers: LeaderAndIsr, UpdateMetadata, StopReplica, sent in this order.

Source: AbstractControllerBrokerRequestBatch (ControllerChannelManager.scala, 3.9).
"""

from collections.abc import Iterable
from typing import Final, Protocol

from klamm.controller.context import ControllerContext, Partition, Partitions
from klamm.controller.control_requests import (
    ControlItem,
    LeaderAndIsrItem,
    StopReplicaItem,
    UpdateMetadataItem,
    leader_and_isr_state,
    metadata_state,
)
from klamm.controller.settings import ControllerSettings
from klamm.model.ids import BrokerId
from klamm.wire.messages import LeaderAndIsrPartitionState, StopReplicaPartitionState

METADATA_CHUNK: Final = 5_000  # partitions in one UpdateMetadata: encoding it holds the loop a few ms


class Outbox(Protocol):
    """Where a request goes; `Channels` for real."""

    def send(self, broker: BrokerId, item: ControlItem) -> None: ...


class RequestBatch:
    def __init__(self, context: ControllerContext, settings: ControllerSettings, outbox: Outbox) -> None:
        self._context = context
        self._settings = settings
        self._outbox = outbox
        self._leader_and_isr: dict[BrokerId, dict[Partition, bool]] = {}
        self._metadata_brokers: dict[BrokerId, None] = {}
        self._metadata_partitions: Partitions = {}
        self._stops: dict[BrokerId, dict[Partition, StopReplicaPartitionState]] = {}

    def clear(self) -> None:
        """Drop what a failed event left behind."""
        self._leader_and_isr.clear()
        self._metadata_brokers.clear()
        self._metadata_partitions.clear()
        self._stops.clear()

    def add_leader_and_isr(self, brokers: Iterable[BrokerId], partition: Partition, is_new: bool) -> None:
        """Also to everyone as metadata: every change of a leader or ISR reaches all brokers."""
        for broker in brokers:
            if broker >= 0:
                asked = self._leader_and_isr.setdefault(broker, {})
                asked[partition] = asked.get(partition, False) or is_new
        self._metadata_partitions[partition] = None
        self._metadata_brokers.update(dict.fromkeys(self._context.registered))

    def add_metadata(self, brokers: Iterable[BrokerId], partitions: Iterable[Partition]) -> None:
        """Without partitions it still carries the list of brokers."""
        self._metadata_brokers.update((b, None) for b in brokers if b >= 0)
        self._metadata_partitions.update((p, None) for p in partitions)

    def add_stop_replica(self, brokers: Iterable[BrokerId], partition: Partition, delete: bool) -> None:
        for broker in brokers:
            if broker >= 0:
                stops = self._stops.setdefault(broker, {})
                before = stops.get(partition)
                sticky = delete or (before is not None and before.delete_partition)
                # the leader epoch of now: what the broker holds, not what the rest of this batch will raise it to
                stops[partition] = StopReplicaPartitionState(partition.partition, partition.leader_epoch, sticky)

    def send(self, cause: str) -> None:
        """Hand everything to the channels; brokers that are not registered get nothing."""
        self._send_leader_and_isr(cause)
        self._send_metadata(cause)
        self._send_stops(cause)
        self.clear()

    def _registered(self, brokers: Iterable[BrokerId]) -> list[BrokerId]:
        return sorted(b for b in brokers if b in self._context.registered)

    def _send_leader_and_isr(self, cause: str) -> None:
        settings, context = self._settings, self._context
        brief = settings.versions.leader_and_isr >= 2
        shared: tuple[dict[Partition, LeaderAndIsrPartitionState], dict[Partition, LeaderAndIsrPartitionState]] = (
            {},
            {},
        )
        for broker in self._registered(self._leader_and_isr):
            states = {}
            for p, is_new in self._leader_and_isr[broker].items():
                made = shared[is_new].get(p)
                if made is None:
                    made = leader_and_isr_state(p, is_new, settings.writes_recovery_state, brief)
                    shared[is_new][p] = made
                states[p] = made
            self._outbox.send(broker, LeaderAndIsrItem(states, (cause,), context.broker_list_version))

    def _send_metadata(self, cause: str) -> None:
        brokers = self._registered(self._metadata_brokers)
        if not brokers:
            return
        told = [p for p in self._metadata_partitions if p.leadership is not None]
        for start in range(0, max(1, len(told)), METADATA_CHUNK):
            item = self._metadata_item(told[start : start + METADATA_CHUNK], cause)
            for broker in brokers:
                self._outbox.send(broker, item)

    def _metadata_item(self, partitions: list[Partition], cause: str) -> UpdateMetadataItem:
        context = self._context
        brief = self._settings.versions.update_metadata >= 5
        states = {p: metadata_state(context, p, brief) for p in partitions}
        return UpdateMetadataItem(states, (cause,), context.broker_list_version)

    def _send_stops(self, cause: str) -> None:
        for broker in self._registered(self._stops):
            item = StopReplicaItem(self._stops[broker], (cause,), self._context.broker_list_version)
            self._outbox.send(broker, item)
