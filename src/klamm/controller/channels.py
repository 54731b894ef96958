"""One channel per registered broker: it sends one request at a time, in order, and resends until it is answered.

The broker of this node has a channel, too. Source: ControllerChannelManager.scala, RequestSendThread (3.9).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from klamm.client.ports import BrokerConnection, Connect
from klamm.controller.context import ControllerContext
from klamm.controller.control_requests import (
    ControlItem,
    RequestBuilder,
    StopReplicaItem,
    UpdateMetadataItem,
    deletion_errors,
)
from klamm.controller.events import (
    Event,
    LeaderAndIsrResponseReceived,
    TopicDeletionStopReplicaResponseReceived,
    UpdateMetadataResponseReceived,
)
from klamm.controller.pending import PendingRequests
from klamm.controller.settings import ControllerSettings
from klamm.controller.topic import Partition
from klamm.model.brokers import Broker, Endpoint
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.time_slices import Slices
from klamm.telemetry.journal import Journal, by_topic
from klamm.telemetry.meters import Timer
from klamm.wire.api import ApiKey
from klamm.wire.errors import WireError
from klamm.wire.messages import LeaderAndIsrResponse, UpdateMetadataResponse

_MAX_JOURNALLED_PARTITIONS: Final = 2_000
"""A request with more partitions is journalled with their number instead of their names."""


@dataclass(frozen=True, slots=True)
class ChannelPorts:
    """What channels get from their owner: `connect` opens a connection to a broker, `put` queues an event."""

    connect: Connect
    put: Callable[[Event], object]


class Channels:
    """The channels of one controller term, by broker."""

    def __init__(
        self,
        context: ControllerContext,
        settings: ControllerSettings,
        ports: ChannelPorts,
        journal: Journal,
        slices: Slices,
    ) -> None:
        self._settings = settings
        self._builder = RequestBuilder(context, settings, slices)
        self._ports = ports
        self._journal = journal
        self._channels: dict[BrokerId, Channel] = {}
        self._closing: dict[asyncio.Task[None], None] = {}
        """In order: a set of tasks would give them in that of their addresses."""

    def __len__(self) -> int:
        """The number of channels."""
        return len(self._channels)

    @property
    def waiting(self) -> int:
        """The number of requests without an answer, over all brokers."""
        return sum(channel.waiting for channel in self._channels.values())

    def queues(self) -> Iterator[tuple[BrokerId, int, Timer]]:
        """Yield, for each broker, its number of unanswered requests and the timer of the time in the queue."""
        for broker, channel in self._channels.items():
            yield broker, channel.waiting, channel.queue_time

    def add(self, broker: Broker) -> str | None:
        """Open a channel to the broker. Returns the reason if the broker lacks the listener for control requests."""
        endpoint = broker.endpoint(self._settings.control_listener)
        if endpoint is None:
            return (
                f"broker {broker.id} has no listener {self._settings.control_listener}: it gets no requests from the "
                "controller. Add the listener to its listeners and restart it."
            )
        assert broker.id not in self._channels, f"broker {broker.id} has a channel already"
        self._channels[broker.id] = Channel(broker, endpoint, self._builder, self._settings, self._ports, self._journal)
        return None

    def remove(self, broker: BrokerId) -> None:
        """Close the broker's channel, drop its queued requests and report its queued replica deletions as failed."""
        channel = self._channels.get(broker)
        if channel is not None:
            channel.fail_queued_deletions()
        self._close(broker)

    def _close(self, broker: BrokerId) -> None:
        """Remove the broker's channel, and close its connection in the background."""
        channel = self._channels.pop(broker, None)
        if channel is not None:
            closing = asyncio.ensure_future(channel.close())
            self._closing[closing] = None
            closing.add_done_callback(self._closing.pop)

    def send(self, broker: BrokerId, item: ControlItem) -> None:
        """Queue a request for the broker; without a channel to the broker the request is dropped."""
        channel = self._channels.get(broker)
        if channel is not None:
            channel.put(item)

    def waiting_deletions(self, broker: BrokerId) -> set[TopicPartition]:
        """Replicas whose deletion is queued for this broker and not sent yet."""
        channel = self._channels.get(broker)
        return set() if channel is None else {p.key for p in partitions_deleted_by(channel.waiting_stops)}

    async def wait_until_answered(self, timeout_s: float) -> None:
        """Wait until no broker has an unanswered request, at most `timeout_s`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for channel in list(self._channels.values()):
                    await channel.is_idle.wait()

    async def close(self) -> None:
        """Close every channel, and wait until their connections are closed."""
        for broker in list(self._channels):
            self._close(broker)
        await asyncio.gather(*self._closing)


def partitions_deleted_by(stops: Iterable[StopReplicaItem]) -> Iterator[Partition]:
    """The partitions whose replica these StopReplica requests delete."""
    return (p for item in stops for p, stop in item.stops.items() if stop.delete_partition)


class Channel:
    """The queue of requests to one broker, and the task that sends them."""

    def __init__(
        self,
        broker: Broker,
        endpoint: Endpoint,
        builder: RequestBuilder,
        settings: ControllerSettings,
        ports: ChannelPorts,
        journal: Journal,
    ) -> None:
        self._broker = broker
        self._endpoint = endpoint
        self._builder = builder
        self._settings = settings
        self._ports = ports
        self._journal = journal
        self._pending = PendingRequests()
        self._oldest_put = 0.0
        self.queue_time = Timer()
        self._item: ControlItem | None = None
        """The request that is being sent, None between two requests."""
        self._arrived = asyncio.Event()
        self.is_idle = asyncio.Event()
        """Set while no request waits for its answer, and once the channel is closed."""
        self.is_idle.set()
        self._connection: BrokerConnection | None = None
        self._task: asyncio.Task[None] | None = asyncio.get_running_loop().create_task(
            self._run(), name=f"controller-to-broker-{broker.id}"
        )

    @property
    def waiting(self) -> int:
        """The number of requests without an answer: those queued and the one being sent."""
        return len(self._pending) + (self._item is not None)

    @property
    def waiting_stops(self) -> Iterator[StopReplicaItem]:
        """The queued StopReplica requests."""
        return self._pending.stops

    def put(self, item: ControlItem) -> None:
        """Queue a request."""
        if not len(self._pending):
            self._oldest_put = asyncio.get_running_loop().time()
        self._pending.put(item)
        self._arrived.set()
        self.is_idle.clear()

    def fail_queued_deletions(self) -> None:
        """Report the replica deletions of all requests without an answer as failed, because the broker is gone."""
        under_way = [self._item] if self._item is not None else []
        self._fail_deletions([*under_way, *self._pending.stops], ErrorCode.NETWORK_EXCEPTION)

    def _fail_deletions(self, items: Iterable[ControlItem], error: ErrorCode) -> None:
        """Report every replica deletion in these requests as failed with this error."""
        replicas = list(partitions_deleted_by(item for item in items if isinstance(item, StopReplicaItem)))
        if replicas:
            errors = dict.fromkeys(replicas, error)
            self._ports.put(TopicDeletionStopReplicaResponseReceived(self._broker.id, self._broker.epoch, errors))

    async def close(self) -> None:
        """Stop sending first, then close the connection (KAFKA-4959).

        The cancelled task keeps its last frame, and so this channel with the context of the whole term: it is let go.
        """
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._disconnect()
        self.is_idle.set()
        while len(self._pending):
            await self._builder.free_states(self._pending.take())

    async def _run(self) -> None:
        """Send queued requests one after the other, each after the response to the one before."""
        while True:
            while not len(self._pending):
                self.is_idle.set()
                self._arrived.clear()
                await self._arrived.wait()
            item = self._pending.take()
            now = asyncio.get_running_loop().time()
            self.queue_time.observe((now - self._oldest_put) * 1000)
            self._oldest_put = now
            self._item = item
            try:
                await self._send(item)
            except Exception as error:  # a programming error or a malformed response: later requests are still sent
                what = f"{type(item).__name__} to broker {self._broker.id}"
                self._journal.line(item.causes[-1], "failed", what=what, why=repr(error))
                self._journal.flush()
                self._disconnect()
                self._fail_deletions([item], ErrorCode.UNKNOWN_SERVER_ERROR)
            self._item = None
            await self._builder.free_states(item)

    async def _send(self, item: ControlItem) -> None:
        """Send the request, and queue events for its responses."""
        for message in await self._builder.bodies(item, self._broker):
            response = await self._send_until_answered(item, message)
            self._queue_response_event(item, message, response)

    async def _send_until_answered(self, item: ControlItem, message: Any) -> Any:
        """Send the request until the broker answers; repetitions do no harm, control requests are idempotent."""
        api, version = ApiKey(message.API_KEY), self._builder.version(item)
        self._journal_request(item, api, version)
        started = asyncio.get_running_loop().time()
        failures = 0
        while True:
            try:
                response = await self._send_once(api, version, message)
            except WireError:
                raise  # it cannot be encoded: a retry does not help
            except KlammError as error:
                self._disconnect()
                failures += 1
                if failures == 1:
                    self._journal.response(item.causes[-1], self._broker.id, api.name, failed=str(error))
                    self._journal.flush()
                await asyncio.sleep(self._settings.resend_pause_ms / 1000)
                continue
            took_ms = round((asyncio.get_running_loop().time() - started) * 1000, 1)
            self._journal.response(
                item.causes[-1], self._broker.id, api.name, ms=took_ms, failures=failures, error=response.error_code
            )
            self._journal.flush()
            return response

    async def _send_once(self, api: ApiKey, version: int, message: Any) -> Any:
        """Connect if needed, send the request once, and return the broker's response."""
        connection = self._connection
        if connection is None or connection.closed:
            connection = self._connection = await self._ports.connect(
                self._endpoint.host,
                self._endpoint.port,
                str(self._settings.broker_id),
                self._settings.socket_timeout_ms / 1000,
            )
        return await connection.request(api, version, message, self._settings.request_timeout_ms / 1000)

    def _queue_response_event(self, item: ControlItem, message: Any, response: Any) -> None:
        """Queue the controller event that belongs to a response.

        There is one for LeaderAndIsr, for a failed UpdateMetadata, and for the deletions of a StopReplica.
        """
        if isinstance(response, LeaderAndIsrResponse):
            self._ports.put(LeaderAndIsrResponseReceived(response, self._broker.id, self._broker.epoch))
        elif isinstance(response, UpdateMetadataResponse) and response.error_code != ErrorCode.NONE:
            self._ports.put(UpdateMetadataResponseReceived(response, self._broker.id))
        elif isinstance(item, StopReplicaItem) and (errors := deletion_errors(item, message, response)):
            self._ports.put(TopicDeletionStopReplicaResponseReceived(self._broker.id, self._broker.epoch, errors))

    def _disconnect(self) -> None:
        """Close the connection to the broker, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _journal_request(self, item: ControlItem, api: ApiKey, version: int) -> None:
        """Journal the request that is about to be sent, with its partitions and causes."""
        if not self._journal.is_kept:
            return
        partitions = item.partitions
        listed = by_topic(partitions) if len(partitions) <= _MAX_JOURNALLED_PARTITIONS else {}
        facts: dict[str, Any] = {"version": version, "count": len(partitions)}
        if len(item.causes) > 1:
            facts["causes"] = item.causes
        if isinstance(item, UpdateMetadataItem):
            facts["broker_list"] = item.broker_list_version
        self._journal.request(item.causes[-1], self._broker.id, api.name, listed, **facts)
        self._journal.flush()
