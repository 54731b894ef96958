"""The controller of a node: active on one node of the cluster, waiting on the others. Source: KafkaController.scala."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from klamm.client.ports import Connect
from klamm.controller import events
from klamm.controller.channels import ChannelPorts
from klamm.controller.context import ReplicasInDeletion
from klamm.controller.controller_election import ControllerElection, ElectionPorts
from klamm.controller.decisions.features import FeatureAnswer, FeatureUpdate
from klamm.controller.event_queue import EventQueue, QueuedEvent
from klamm.controller.events import Event, ProducerIds, ShutdownAnswer
from klamm.controller.handlers import (
    brokers,
    cluster_services,
    elections,
    failover,
    isr,
    reassignment_requests,
    responses,
    topic_deletion,
    topics,
)
from klamm.controller.metrics import NOTHING_IN_DELETION, ControllerMetrics, count_deletion
from klamm.controller.observer import Observer
from klamm.controller.settings import ControllerSettings
from klamm.controller.standby import Standby, StandbyPorts, standby_readings
from klamm.controller.states import ControllerState
from klamm.controller.term_context import TermContext, WaitForFeatures
from klamm.controller.timers import Timers
from klamm.controller.watches import event_for, retry_events_for
from klamm.model.errors import ErrorCode, KlammError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.time_slices import Slices, TimeSlices
from klamm.runtime.world import World
from klamm.telemetry.journal import Journal
from klamm.telemetry.meters import Reading
from klamm.wire.messages import AlterPartitionRequest, AlterPartitionResponse
from klamm.zk.fenced import ControllerMoved
from klamm.zk.store import Store
from klamm.zk.watches import WatchEvent
from klamm.zk.znodes import FEATURE

T = TypeVar("T")
Handler = Callable[[TermContext, Any], Awaitable[None]]

MIN_RETRY_BACKOFF_S: Final = 1.0
"""The first pause before a failed registration or read is retried."""
MAX_RETRY_BACKOFF_S: Final = 16.0
"""The longest pause between retries; it doubles up to here."""
STOP_TIMEOUT_S: Final = 5.0
"""How long `stop` waits for the event in progress before it cancels it."""
MAX_SHUTDOWN_DELAY_S: Final = 0.5
"""How long the answer to a ControlledShutdown waits for brokers to answer the requests that it caused."""
QUEUE_TIMES_KEPT_S: Final = 300.0
"""Queue times are dropped from the metrics after this long without an event."""

HANDLERS: Final[dict[type[Event], Handler]] = {
    events.ResumeAfterFailure: failover.on_resume_after_failure,
    events.BrokerChange: brokers.on_broker_change,
    events.BrokerModifications: brokers.on_broker_modifications,
    events.TopicChange: topics.on_topic_change,
    events.PartitionModifications: topics.on_partition_modifications,
    events.TopicDeletion: topic_deletion.on_topic_deletion,
    events.TopicDeletionStopReplicaResponseReceived: topic_deletion.on_replica_deletion_answer,
    events.DeadBrokerTimeout: topic_deletion.on_dead_broker_timeout,
    events.ControlledShutdown: brokers.on_controlled_shutdown,
    events.UncleanLeaderElectionEnable: elections.on_unclean_enabled,
    events.TopicUncleanLeaderElectionEnable: elections.on_topic_unclean_enabled,
    events.LeaderAndIsrResponseReceived: responses.on_leader_and_isr_response,
    events.UpdateMetadataResponseReceived: responses.on_update_metadata_response,
    events.LogDirEventNotification: responses.on_log_dir_event,
    events.IsrChangeNotification: isr.on_isr_change_notification,
    events.AlterPartitionReceived: isr.on_alter_partition,
    events.ZkPartitionReassignment: reassignment_requests.on_zk_reassignment,
    events.ApiPartitionReassignment: reassignment_requests.on_api_reassignment,
    events.PartitionReassignmentIsrChange: reassignment_requests.on_state_change,
    events.TargetsInSync: reassignment_requests.on_targets_in_sync,
    events.ListPartitionReassignments: reassignment_requests.on_list_reassignments,
    events.ReplicaLeaderElection: elections.on_requested_election,
    events.AutoPreferredReplicaLeaderElection: elections.on_rebalance,
    events.UpdateFeatures: cluster_services.on_update_features,
    events.DelegationTokenExpiry: cluster_services.on_token_expiry,
    events.AllocateProducerIds: cluster_services.on_allocate_producer_ids,
}
"""The handler of each event, while this node is the active controller."""


async def _knows_features(_epoch: int, _timeout_s: float) -> bool:
    """Return true at once: the default for a node that does not read `/feature`, which need not wait for new levels."""
    return True


class Controller:
    """One node's controller; `start` it once the broker is registered, `stop` it before the session is closed.

    The node owns the ZooKeeper sessions. It hands each one over as a `Store`, passes every watch event of the current
    session to `on_watch`, awaits `session_expired()` when a session expires, and then calls `session_established` with
    the next store. The controller has the node registered again: `register` is awaited with the new store, and once
    more each second while it raises KlammError.

        controller = Controller(world, settings, partial(Connection.open, world), journal, register)
        zookeeper.on_watch = controller.on_watch
        controller.start(Store(zookeeper))

    All work happens in one task, one event at a time. Callers of `alter_partition`, `controlled_shutdown` and
    `allocate_producer_ids` are answered in every case, with NOT_CONTROLLER where this node is not active.
    """

    def __init__(
        self,
        world: World,
        settings: ControllerSettings,
        connect: Connect,
        journal: Journal,
        register: Callable[[Store], Awaitable[object]],
        observer: Observer | None = None,
        wait_for_features: WaitForFeatures = _knows_features,
        make_slices: Callable[[], Slices] = TimeSlices,
        standby: StandbyPorts | None = None,
    ) -> None:
        """`make_slices` makes the time slices of a term; a simulation passes slices that count items.

        Without `standby`, this node keeps no mirror of the cluster while it is not controller.
        """
        self._journal = journal
        self._observer = observer or Observer()
        self._register = register
        self._wait_for_features = wait_for_features
        self._queue = EventQueue()
        ports = ElectionPorts(
            ChannelPorts(connect, self._queue.put),
            world.clock.now_ms,
            world.randomness.bytes,
            wait_for_features,
            make_slices,
        )
        self._metrics = ControllerMetrics()
        self._standby = (
            Standby(standby, make_slices, journal, settings, self._observer.on_unexpected_error) if standby else None
        )
        self._election = ControllerElection(settings, ports, journal, self._metrics, observer, self._standby)
        self._store: Store | None = None
        self._event_task: asyncio.Task[None] | None = None
        self._timers = Timers(self._queue.put)
        self._last_event_at = 0.0
        self._retry_backoffs_s: dict[events.RetryKey, float] = {}
        """The last backoff of each event that failed, by retry key."""
        self.state = ControllerState.IDLE
        """What it is doing this moment."""

    @property
    def is_active(self) -> bool:
        """Whether this node is controller: true from its election on, also while it still reads the cluster's state."""
        return self._election.term is not None

    @property
    def epoch(self) -> int:
        """The epoch of the current term; 0 if this node is not controller."""
        return self._election.term.context.epoch if self._election.term else 0

    @property
    def term(self) -> TermContext | None:
        """The context of the current term, read-only, for metrics and tests; None if this node is not controller."""
        return self._election.term

    @property
    def standby(self) -> Standby | None:
        """The standby of this node, for metrics and tests; None where it keeps no mirror."""
        return self._standby

    @property
    def queue_size(self) -> int:
        """The number of queued events."""
        return len(self._queue)

    async def count_deletion(self) -> ReplicasInDeletion:
        """Count the replicas of topics to be deleted, which takes several passes of the loop."""
        term = self._election.term
        return await count_deletion(term.context, term.slices) if term is not None else NOTHING_IN_DELETION

    def readings(self, deletion: ReplicasInDeletion = NOTHING_IN_DELETION) -> Iterator[Reading]:
        """The current values of the controller's metrics; `deletion` comes from `count_deletion`."""
        if asyncio.get_running_loop().time() - self._last_event_at > QUEUE_TIMES_KEPT_S:
            self._metrics.queue_time.forget()  # quantiles of an hour ago mislead (KAFKA-10189)
        term = self._election.term
        context, channels = (term.context, term.channels) if term is not None else (None, None)
        yield from self._metrics.readings(self.state, len(self._queue), context, channels, deletion)
        yield from standby_readings(self._standby)

    # ---- the node's life

    def start(self, store: Store) -> None:
        """Start the task that handles events, and take part in the election."""
        self._store = store
        self._election.use_session(store)
        self._event_task = asyncio.get_running_loop().create_task(self._process_events(), name="controller-events")
        self._queue.put(events.Startup())
        if self._standby is not None:
            self._standby.start()

    async def stop(self) -> None:
        """Finish the current event, answer all waiting callers and resign. The session's end deletes `/controller`."""
        self._timers.close()
        if self._standby is not None:
            await self._standby.stop()
        self._queue.close(events.ShutdownEventThread())
        if self._event_task is not None:
            await asyncio.wait([self._event_task], timeout=STOP_TIMEOUT_S)
            self._event_task.cancel()  # it may wait for a ZooKeeper that is gone (KAFKA-9189)
            await asyncio.gather(self._event_task, return_exceptions=True)
        await self._election.resign("", "shut down")
        self._election.close()
        self._journal.flush()

    async def session_expired(self) -> None:
        """Queue the resignation; return when it begins. Callers queued before are answered NOT_CONTROLLER."""
        await self._queue.clear_and_put(events.Expire()).started.wait()

    def session_established(self, store: Store) -> None:
        """Use the new ZooKeeper session: register the broker again, and take part in the election."""
        self._store = store
        self._queue.put(events.RegisterBrokerAndReelect(store))

    def on_watch(self, watch: WatchEvent) -> None:
        """Queue the event of a fired watch; paths that do not concern the controller are ignored."""
        if (event := event_for(watch)) is not None:
            self._queue.put(event)

    # ---- what brokers and handlers ask

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """Queue an AlterPartition request, and return its response."""
        return await self._ask(events.AlterPartitionReceived(request, version))

    async def controlled_shutdown(self, broker: BrokerId, broker_epoch: int) -> ShutdownAnswer:
        """Queue a ControlledShutdown request, and return its answer once the brokers have answered its requests.

        Kafka answers before they are sent: the broker would close its connections before clients can be told of new
        leaders, and before these lead. A broker that does not answer delays this by `MAX_SHUTDOWN_DELAY_S`.
        """
        answer = await self._ask(events.ControlledShutdown(broker, broker_epoch))
        if answer.error is ErrorCode.NONE and (term := self._election.term) is not None:
            await term.channels.wait_until_answered(MAX_SHUTDOWN_DELAY_S)
        return answer

    async def allocate_producer_ids(self, broker: BrokerId, broker_epoch: int) -> ProducerIds:
        """Allocate a block of producer ids for the broker."""
        return await self._ask(events.AllocateProducerIds(broker, broker_epoch))

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[BrokerId] | None]
    ) -> events.ReassignmentAnswer:
        """Begin, or with a target of None cancel, reassignments."""
        return await self._ask(events.ApiPartitionReassignment(targets))

    async def list_reassignments(self, partitions: Sequence[TopicPartition] | None) -> events.ReassignmentList:
        """The reassignments in progress, of these partitions or (None) of all."""
        return await self._ask(events.ListPartitionReassignments(partitions))

    async def elect_leaders(self, partitions: Sequence[TopicPartition], *, unclean: bool) -> events.ElectionAnswer:
        """Elect the preferred replicas of these partitions, or (`unclean`) any live replica where none leads."""
        return await self._ask(events.ReplicaLeaderElection(partitions, unclean))

    def is_queued_for_deletion(self, topic: str) -> bool:
        """Whether this broker is controller and the topic's deletion has been requested and is not complete."""
        term = self._election.term
        return term is not None and topic in term.context.topics_to_be_deleted

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic with this id; None if there is none, or if this node is not controller."""
        term = self._election.term
        found = term.context.topic_with_id(topic_id) if term is not None else None
        return None if found is None else found.name

    async def update_features(
        self, updates: Sequence[FeatureUpdate], timeout_s: float, *, validate_only: bool
    ) -> FeatureAnswer:
        """Finalize feature levels, and wait until this node has read them from ZooKeeper.

        A client that asks this node right afterwards gets the new levels. The event ends before that wait, so that
        other events are not held up.
        """
        answer = await self._ask(events.UpdateFeatures(updates, validate_only))
        if answer.epoch is None or await self._wait_for_features(answer.epoch, timeout_s):
            return answer
        return answer.with_timeout(f"written, but this node has not seen {FEATURE} of version {answer.epoch} in time")

    async def become_controller(self, epoch: int) -> bool:
        """Replace the controller if its epoch is still `epoch`; returns whether this node is controller afterwards."""
        return await self._ask(events.BecomeController(epoch))

    def unclean_election_enabled(self, topic: str | None = None) -> None:
        """Queue an election, since a config now allows unclean leaders: a topic's, or (None) the brokers' default."""
        if topic is None:
            self._queue.put(events.UncleanLeaderElectionEnable())
        elif self.is_active:
            self._queue.put(events.TopicUncleanLeaderElectionEnable(topic))

    def allow_unclean_election(self, allowed: bool) -> None:
        """Set the brokers' default for unclean elections; if it is now true, elect for leaderless partitions."""
        self._election.allow_unclean_election(allowed)
        if allowed:
            self.unclean_election_enabled()

    async def _ask(self, event: events.Answered[T]) -> T:
        """Queue the event, and return its reply."""
        self._queue.put(event)
        return await event.reply

    # ---- one event at a time

    async def _process_events(self) -> None:
        """Take events from the queue and handle them one at a time, until the controller stops."""
        while True:
            queued = await self._queue.take()
            if not queued.begin():
                continue
            if isinstance(queued.event, events.ShutdownEventThread):
                return
            await self._process(queued)

    async def _process(self, queued: QueuedEvent) -> None:
        """Handle one event, journal it, record its metrics, and react to an error: retry later, or resign."""
        event = queued.event
        loop = asyncio.get_running_loop()
        began = loop.time()
        waited_ms = round((began - queued.enqueued_at) * 1000, 1)
        facts = _journal_facts(event) if self._journal.is_kept else {}
        cause = self._journal.event(type(event).__name__, waited_ms=waited_ms, **facts)
        self.state = event.state
        self._last_event_at = began
        self._metrics.event_taken(waited_ms)
        if self._retry_backoffs_s and event.retry_key in self._retry_backoffs_s:
            self._journal.begin_retry(event.retry_key)
        self._observer.on_event_begin(event, self._queue)
        try:
            await self._handle(event, cause)
        except ControllerMoved as moved:
            self._observer.on_event_failed(event)
            self._journal.line(cause, "moved", why=str(moved))
            event.refuse(ErrorCode.NOT_CONTROLLER)
            await self._run_recovery_step(self._election.resign_after_refused_write(cause), cause)
        except KlammError as error:
            self._observer.on_event_failed(event)
            self._journal.line(cause, "failed", what=type(event).__name__, why=str(error))
            self._retry_later(events.Reelect() if isinstance(event, events.RegisterBrokerAndReelect) else event)
            if self.is_active:
                self._retry_later(events.ResumeAfterFailure())
        except Exception as error:  # a programming error: the context may be inconsistent
            self._observer.on_event_failed(event)
            self._observer.on_unexpected_error(error)
            self._journal.line(cause, "failed", what=type(event).__name__, why=repr(error))
            await self._run_recovery_step(
                self._election.resign_and_delete_znode(
                    cause, f"unexpected error while handling {type(event).__name__}"
                ),
                cause,
            )
        else:
            self._on_event_succeeded(event)
        finally:
            event.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            self._observer.on_event_end(event)
            if self._election.term is not None:
                self._election.term.batch.clear()
            self.state = ControllerState.IDLE
            self._metrics.event_done(event.state, (loop.time() - began) * 1000)
            self._journal.line(cause, "done", event=type(event).__name__, ms=round((loop.time() - began) * 1000, 1))
            self._journal.end_event(is_retried=bool(self._retry_backoffs_s))
            self._journal.flush()

    def _on_event_succeeded(self, event: Event) -> None:
        """Reset the event's retry backoff; schedule retries of writes that ZooKeeper refused during the event."""
        term = self._election.term
        again = retry_events_for(term.store.writer.pop_refused_paths()) if term is not None else {}
        for late in again.values():
            self._retry_later(late)
        if self._retry_backoffs_s and event.retry_key not in again:
            self._retry_backoffs_s.pop(event.retry_key, None)

    def _retry_later(self, event: Event) -> None:
        """Schedule a retry of an event that ZooKeeper failed: its watch may be spent. Kafka does not retry."""
        assert self._store is not None, "events are handled only after start"
        if not event.is_retried or event.owes_answer or not self._store.is_alive:
            return
        key = event.retry_key
        if key not in self._timers:
            self._retry_backoffs_s[key] = min(
                2 * self._retry_backoffs_s.get(key, MIN_RETRY_BACKOFF_S / 2), MAX_RETRY_BACKOFF_S
            )
            self._timers.after(key, self._retry_backoffs_s[key], event)

    async def _run_recovery_step(self, step: Awaitable[object], cause: str) -> None:
        """Await a step that follows an error; if it fails as well, journal it and retry the election."""
        try:
            await step
        except Exception as error:
            if not isinstance(error, KlammError):
                self._observer.on_unexpected_error(error)
            why = str(error) if isinstance(error, KlammError) else repr(error)
            self._journal.line(cause, "failed", what="reading who is controller", why=why)
            self._retry_later(events.Reelect())

    async def _handle(self, event: Event, cause: str) -> None:
        """Dispatch the event: elections and sessions are handled here, all others by the active term's handlers."""
        if isinstance(event, events.Startup):
            await self._election.elect(cause)
        elif isinstance(event, events.ControllerChange | events.Reelect):
            if self._standby is not None and isinstance(event, events.Reelect) and not self.is_active:
                await self._standby.give_way()
            # also after a change: the creation of `/controller` spends the watch, and hides a deletion right after it
            await self._election.maybe_resign(cause)
            await self._election.elect(cause)
        elif isinstance(event, events.BecomeController):
            await self._election.take_over(cause, event.epoch)
            event.answer(self.is_active)
        elif isinstance(event, events.Expire):
            await self._election.resign(cause, "the ZooKeeper session expired")
        elif isinstance(event, events.RegisterBrokerAndReelect):
            await self._register_and_reelect(event, cause)
        elif (term := self._election.term) is None:
            event.refuse(ErrorCode.NOT_CONTROLLER)
        else:
            term.cause = cause
            await self._run_handler(event, term)

    async def _run_handler(self, event: Event, term: TermContext) -> None:
        """Run the event's handler; states written before a ZooKeeper failure are still sent to brokers.

        Not after the session has ended: a write without an answer may have changed them since, and the next controller
        sends all states.
        """
        try:
            await HANDLERS[type(event)](term, event)
        except ControllerMoved:
            raise
        except KlammError:
            if term.store.client.is_alive:
                await term.send_requests()
            raise

    async def _register_and_reelect(self, event: events.RegisterBrokerAndReelect, cause: str) -> None:
        """Register the broker in the new session, and take part in the election; a refused registration is retried."""
        if event.store is not self._store:
            return  # a repetition for a session that is gone by now
        self._election.use_session(event.store)
        try:
            await self._register(event.store)
        except KlammError as error:
            self._journal.line(cause, "failed", what="registration", why=str(error))
            self._timers.after(event.store, MIN_RETRY_BACKOFF_S, event)
            return
        await self._election.elect(cause)


def _journal_facts(event: Event) -> dict[str, Any]:
    """The fields of an event that its journal line has."""
    facts = {name: getattr(event, name, None) for name in ("broker", "broker_epoch", "topic", "version")}
    return {name: value for name, value in facts.items() if isinstance(value, int | str)}
