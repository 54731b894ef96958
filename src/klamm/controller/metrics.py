"""The controller's counters, timers and gauges over all terms. Source: ControllerStats, KafkaController's gauges (3.9).

Numbers are updated where they change, so that reading them costs nothing, however many partitions there are. Only the
replicas of topics to be deleted are counted on request, in time slices.
"""

from collections.abc import Iterator
from typing import Final

from klamm.controller.channels import Channels
from klamm.controller.context import ControllerContext, ReplicasInDeletion
from klamm.controller.states import ControllerState
from klamm.runtime.time_slices import Slices
from klamm.telemetry.meters import Reading, Timer

_STATS: Final = "kafka_controller_controllerstats_"
_GAUGE: Final = "kafka_controller_kafkacontroller_"
_CHANNELS: Final = "kafka_controller_controllerchannelmanager_"
_QUEUE: Final = "kafka_controller_controllereventmanager_"

NOTHING_IN_DELETION: Final = ReplicasInDeletion(0, 0)

TIMER_OF: Final = {
    ControllerState.CONTROLLER_CHANGE: "controllerchange",
    ControllerState.BROKER_CHANGE: "leaderelection",
    ControllerState.TOPIC_CHANGE: "topicchange",
    ControllerState.TOPIC_DELETION: "topicdeletion",
    ControllerState.ALTER_PARTITION_REASSIGNMENT: "partitionreassignment",
    ControllerState.AUTO_LEADER_BALANCE: "autoleaderbalance",
    ControllerState.MANUAL_LEADER_BALANCE: "manualleaderbalance",
    ControllerState.CONTROLLED_SHUTDOWN: "controlledshutdown",
    ControllerState.ISR_CHANGE: "isrchange",
    ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED: "leaderandisrresponsereceived",
    ControllerState.LOG_DIR_CHANGE: "logdirchange",
    ControllerState.CONTROLLER_SHUTDOWN: "controllershutdown",
    ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE: "uncleanleaderelectionenable",
    ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE: "topicuncleanleaderelectionenable",
    ControllerState.LIST_PARTITION_REASSIGNMENT: "listpartitionreassignment",
    ControllerState.UPDATE_FEATURES: "updatefeatures",
}
"""The metric of each controller state, with Kafka's names: broker changes are its LeaderElection. Idle and
UpdateMetadataResponseReceived have none."""


class ControllerMetrics:
    """The metrics of one node's controller; those of a term are read from the term's objects."""

    def __init__(self) -> None:
        self.queue_time = Timer()
        self.state_times = {state: Timer() for state in TIMER_OF}
        self.unclean_elections = 0

    def event_taken(self, waited_ms: float) -> None:
        """Record how long an event waited in the queue."""
        self.queue_time.observe(waited_ms)

    def event_done(self, state: ControllerState, took_ms: float) -> None:
        """Record how long handling an event took, under its controller state."""
        timer = self.state_times.get(state)
        if timer is not None:
            timer.observe(took_ms)

    def readings(
        self,
        state: ControllerState,
        queue_size: int,
        context: ControllerContext | None,
        channels: Channels | None,
        deletion: ReplicasInDeletion,
    ) -> Iterator[Reading]:
        """The current values of the controller's metrics.

        `context` and `channels` are the term's, or None if this node is not controller.
        """
        yield Reading(f"{_GAUGE}controllerstate", int(state))
        yield Reading(f"{_QUEUE}eventqueuesize", queue_size)
        yield Reading(f"{_QUEUE}eventqueuetimems", self.queue_time)
        yield Reading(f"{_STATS}uncleanleaderelections", self.unclean_elections)
        for timed, timer in self.state_times.items():
            yield Reading(f"{_STATS}{TIMER_OF[timed]}rateandtimems", timer)
        for name, value in _gauges(context, deletion).items():
            yield Reading(f"{_GAUGE}{name}", value)
        yield Reading(f"{_CHANNELS}totalqueuesize", channels.waiting if channels else 0)
        for broker, waiting, queue_time in channels.queues() if channels else ():
            yield Reading(f"{_CHANNELS}queuesize", waiting, (str(broker),))
            yield Reading(f"{_CHANNELS}requestrateandqueuetimems", queue_time, (str(broker),))


async def count_deletion(context: ControllerContext, slices: Slices) -> ReplicasInDeletion:
    """Count the replicas of all topics to be deleted; these may change while it counts."""
    counts = [NOTHING_IN_DELETION]
    for topic in list(context.topics_to_be_deleted):
        await slices.checkpoint(len(context.topics[topic].partitions) if topic in context.topics else 0)
        counts.append(context.replicas_in_deletion(topic))
    return ReplicasInDeletion(*map(sum, zip(*counts, strict=True)))


def _gauges(context: ControllerContext | None, deletion: ReplicasInDeletion) -> dict[str, int]:
    """The values of the gauges; zero for most of them if this node is not controller."""
    c = context or _NO_TERM
    return {
        "activecontrollercount": int(context is not None),
        "offlinepartitionscount": c.offline_count,
        "preferredreplicaimbalancecount": c.imbalanced_count,
        "globaltopiccount": len(c.topics),
        "globalpartitioncount": c.partition_count,
        "topicstodeletecount": len(c.topics_to_be_deleted),
        "replicastodeletecount": deletion.left,
        "topicsineligibletodeletecount": len(c.topics_ineligible_for_deletion),
        "replicasineligibletodeletecount": deletion.ineligible,
        "activebrokercount": len(c.registered),
        "fencedbrokercount": 0,
        "zkmigrationstate": _NO_MIGRATION,
    }


_NO_MIGRATION: Final = 4
"""ZkMigrationState.ZK."""
_NO_TERM: Final = ControllerContext(0)
"""The context whose gauges a node shows that is not controller."""
