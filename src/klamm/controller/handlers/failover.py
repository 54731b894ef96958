"""Taking office, in Kafka's order. Source: KafkaController.onControllerFailover, initializeControllerContext (3.9)."""

from klamm.controller.context import Partition
from klamm.controller.events import ResumeAfterFailure
from klamm.controller.handlers.brokers import not_to_be_deleted, open_channels, usable_brokers
from klamm.controller.handlers.condemned import load_condemned, on_brokers_return, remove_struck_out
from klamm.controller.handlers.elections import begin_rebalancing, on_listed_election
from klamm.controller.handlers.features import set_up_features
from klamm.controller.handlers.partitions import trigger_online
from klamm.controller.handlers.reassignment import proceed
from klamm.controller.handlers.reassignment_requests import resume_reassignments
from klamm.controller.handlers.replicas import replicas_offline, replicas_online
from klamm.controller.handlers.tokens import begin_expiring_tokens
from klamm.controller.handlers.topic_deletion import queue_deletions, resume_deletions
from klamm.controller.handlers.topics import load_topics
from klamm.controller.overlap import overlapped
from klamm.controller.states import PartitionState, ReplicaState
from klamm.controller.workbench import Workbench
from klamm.model.ids import BrokerId
from klamm.runtime import memory
from klamm.zk.fenced import chunks
from klamm.zk.znodes import ISR_CHANGES, LOG_DIR_EVENTS

_BEFORE_OFFLINE = (ReplicaState.ONLINE, ReplicaState.DELETION_INELIGIBLE)
"""The second is where a term finds the replicas of brokers that are away."""
LOAD_CHUNK = 1_000  # partitions whose state is read and remembered between two awaits
START_CHUNK = 5_000  # replicas whose first state is noted


async def on_controller_failover(bench: Workbench) -> None:
    """Everything ZooKeeper knows into memory, the broker list to the brokers, then the two state machines.

    Notifications are cleared before the context is read: what they announced is read then anyway. The broker list goes
    out before any LeaderAndIsr: nobody can follow a leader it does not know (KAFKA-4443).
    """
    await set_up_features(bench)
    for parent in (LOG_DIR_EVENTS, ISR_CHANGES):
        await bench.store.delete_notifications(parent, await bench.store.list_notifications(parent))
    await _read_context(bench)
    await load_condemned(bench)
    to_be_deleted = await queue_deletions(bench)
    bench.batch.add_metadata(bench.context.registered, ())
    await bench.send_requests()
    await on_brokers_return(bench, list(bench.context.registered))
    await _start_replicas(bench)
    await _start_partitions(bench)
    await trigger_online(bench)
    await resume_reassignments(bench)
    await resume_deletions(bench, to_be_deleted)
    await on_listed_election(bench)
    begin_rebalancing(bench)
    begin_expiring_tokens(bench)


async def on_resume_after_failure(bench: Workbench, event: ResumeAfterFailure) -> None:
    """What waits in memory, whatever the event was that ZooKeeper failed: as at the end of a failover.

    Brokers whose coming or going is not settled are left to the event that tells of them, which comes again, too.
    """
    await remove_struck_out(bench)
    await trigger_online(bench)
    await replicas_offline(bench, not_to_be_deleted(bench, await _not_taken_out(bench)))
    await proceed(bench, list(bench.context.reassigning), again=True)
    await resume_deletions(bench, list(bench.context.topics_to_be_deleted))


async def _not_taken_out(bench: Workbench) -> dict[BrokerId, list[Partition]]:
    """Replicas that went offline, and could not be taken out of their ISRs."""
    context = bench.context
    left: dict[BrokerId, list[Partition]] = {}
    for broker, states in context.replica_states.items():
        if broker in context.unsettled:
            continue
        gone = context.offline_dirs.get(broker, {}) if broker in context.registered else states
        async for chunk in bench.turns.over(list(gone), START_CHUNK):
            left.setdefault(broker, []).extend(p for p in chunk if states.get(p) in _BEFORE_OFFLINE)
    return left


async def _read_context(bench: Workbench) -> None:
    context = bench.context
    brokers = usable_brokers(bench, await bench.store.read_brokers(watch=True))
    context.add_brokers(brokers.values())
    partitions = await load_topics(bench, await bench.store.list_topics(watch=True))
    await overlapped(_read_states(bench, chunk) for chunk in chunks(partitions, LOAD_CHUNK))
    open_channels(bench, brokers.values())


async def _read_states(bench: Workbench, partitions: list[Partition]) -> None:
    read = await bench.store.read_states(partitions)
    await bench.turns.take_for(len(partitions))
    for p, state in read.found.items():
        bench.context.put_leadership(p, state)
    bench.refuse("state", {p: why for p, why in read.unreadable.items() if why != "no state znode"})
    if len(partitions) == LOAD_CHUNK:  # a small cluster is not worth it: what is garbage by now would stay, too
        memory.settle()


async def _start_replicas(bench: Workbench) -> None:
    """Online where the broker lives, which tells every replica who leads; else offline, and out of the ISRs."""
    context = bench.context
    online: dict[BrokerId, list[Partition]] = {}
    offline: dict[BrokerId, list[Partition]] = {}
    for broker, states in context.replica_states.items():
        await bench.turns.take_for(len(states))
        live = broker in context.live
        replicas = (online if live else offline)[broker] = list(states)
        initial = ReplicaState.ONLINE if live else ReplicaState.DELETION_INELIGIBLE
        async for chunk in bench.turns.over(replicas, START_CHUNK):
            states.update(dict.fromkeys(chunk, initial))
    await replicas_online(bench, not_to_be_deleted(bench, online))
    await replicas_offline(bench, not_to_be_deleted(bench, offline))


async def _start_partitions(bench: Workbench) -> None:
    """As they are: without a znode New, with a live leader Online, else Offline."""
    context = bench.context
    async for chunk in bench.turns.over(context.partitions(), LOAD_CHUNK):
        for p in chunk:
            if p.leadership is None:
                context.start(p, PartitionState.NEW)
                if context.is_to_be_deleted(p):
                    context.half_deleted[p] = None
            else:
                is_led = context.is_online(p.leader, p)
                context.start(p, PartitionState.ONLINE if is_led else PartitionState.OFFLINE)
