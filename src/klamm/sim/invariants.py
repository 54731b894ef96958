"""What must hold after every event, and what must hold once all is well again.

Each is a function: what happened before and what happens now (or the cluster as it stands) in, a sentence on what is
wrong out, or None. To add one, write it here and put it into `ALWAYS` or `AT_REST`.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.brokers import StubBroker
from klamm.sim.history import Elected, Event, History, OrderReceived, StateWritten
from klamm.sim.zookeeper.tree import Tree
from klamm.wire.messages import LeaderAndIsrRequest
from klamm.zk import znodes

Always = Callable[[History, Event], str | None]


class Cluster(Protocol):
    """What can be seen of a cluster at rest."""

    history: History

    @property
    def tree(self) -> Tree: ...
    @property
    def running(self) -> Iterable[StubBroker]: ...


AtRest = Callable[[Cluster], str | None]

# ---- after every event


def epoch_counts_elections(history: History, event: Event) -> str | None:
    """The controller epoch rises by one with each election, and by nothing else."""
    if isinstance(event, Elected) and (event.epoch != event.before + 1 or event.broker is None):
        return f"controller epoch {event.before} became {event.epoch}, elected was {event.broker}"
    return None


def one_actor_per_epoch(history: History, event: Event) -> str | None:
    """Orders carry an epoch that their sender won."""
    if isinstance(event, OrderReceived):
        sender, epoch = event.message.controller_id, event.message.controller_epoch
        winner = history.winners.get(epoch, (None, 0))[0]
        if sender != winner:
            return f"broker {sender} gives orders in epoch {epoch}, which broker {winner} won"
    return None


def fenced_writes(history: History, event: Event) -> str | None:
    """Only the session that won the newest epoch writes states, each time bound to the epoch's znode."""
    if isinstance(event, StateWritten):
        winner = history.winners.get(history.epoch)
        if winner is None or event.session != winner[1] or not event.checks_epoch:
            return f"{event.partition} written by session {event.session:x} while {winner} holds epoch {history.epoch}"
        if event.after.controller_epoch > history.epoch:
            return f"{event.partition} written with controller epoch {event.after.controller_epoch}, not yet won"
    return None


def followed_epochs_are_monotone(history: History, event: Event) -> str | None:
    """A broker follows no controller older than one it followed before."""
    if isinstance(event, OrderReceived) and not event.refusal:
        highest = history.applied.get((event.broker, event.incarnation), 0)
        if event.message.controller_epoch < highest:
            return f"broker {event.broker} follows epoch {event.message.controller_epoch} after {highest}"
    return None


def leader_epoch_is_monotone(history: History, event: Event) -> str | None:
    """Another leader, none among them, means a higher leader epoch; it never falls."""
    if isinstance(event, StateWritten) and event.before is not None:
        before, after = event.before, event.after
        if after.leader_epoch < before.leader_epoch:
            return f"{event.partition}: leader epoch {before.leader_epoch} fell to {after.leader_epoch}"
        if after.leader != before.leader and after.leader_epoch == before.leader_epoch:
            return f"{event.partition}: leader {before.leader} became {after.leader} within epoch {after.leader_epoch}"
    return None


def one_leader_per_epoch(history: History, event: Event) -> str | None:
    """Nobody ever hears of two leaders of one leader epoch."""
    for p, leader, epoch in _leaders_named(event):
        known = history.leaders.get((p, epoch), leader)
        if leader != known and leader >= 0:
            return f"{p}: leaders {known} and {leader} in leader epoch {epoch}"
    return None


def _leaders_named(event: Event) -> Iterable[tuple[TopicPartition, BrokerId, int]]:
    if isinstance(event, StateWritten):
        yield event.partition, event.after.leader, event.after.leader_epoch
    elif isinstance(event, OrderReceived) and isinstance(event.message, LeaderAndIsrRequest):
        for topic in event.message.topic_states:
            for s in topic.partition_states:
                yield TopicPartition(topic.topic_name, s.partition_index), BrokerId(s.leader), s.leader_epoch


def orders_tell_what_was_written(history: History, event: Event) -> str | None:
    """Leader, leader epoch and ISR of an order were in the znode at the version it names, before it was sent."""
    if isinstance(event, OrderReceived) and isinstance(event.message, LeaderAndIsrRequest):
        for topic in event.message.topic_states:
            for s in topic.partition_states:
                p = TopicPartition(topic.topic_name, s.partition_index)
                versions = history.states.get(p, [])
                if s.partition_epoch >= len(versions):
                    return f"{p}: broker {event.broker} is told of version {s.partition_epoch}, which does not exist"
                was = versions[s.partition_epoch]
                if (s.leader, s.leader_epoch, tuple(s.isr)) != (was.leader, was.leader_epoch, was.isr):
                    return f"{p}: broker {event.broker} is told {s}, version {s.partition_epoch} was {was}"
    return None


def leader_is_in_sync(history: History, event: Event) -> str | None:
    """A leader is a replica and in the ISR; the ISR is never empty and within the replicas."""
    if isinstance(event, StateWritten):
        state, p = event.after, event.partition
        if not state.isr:
            return f"{p}: empty ISR"
        if not set(state.isr) <= set(event.replicas):
            return f"{p}: ISR {state.isr} is not within replicas {event.replicas}"
        if state.has_leader and state.leader not in state.isr:
            return f"{p}: leader {state.leader} is not in ISR {state.isr}"
    return None


def elections_are_clean(history: History, event: Event) -> str | None:
    """A new leader was in the ISR before."""
    if isinstance(event, StateWritten) and event.before is not None:
        leader = event.after.leader
        if event.after.has_leader and leader != event.before.leader and leader not in event.before.isr:
            return f"{event.partition}: new leader {leader} was not in ISR {event.before.isr}"
    return None


def partitions_begin_at_zero(history: History, event: Event) -> str | None:
    """A new partition has leader epoch 0 and the first of its ISR as leader."""
    if isinstance(event, StateWritten) and event.before is None:
        state = event.after
        in_order = tuple(r for r in event.replicas if r in state.isr)
        if state.leader_epoch != 0 or state.isr != in_order or state.leader != in_order[0]:
            return f"{event.partition}: begins as {state} with replicas {event.replicas}"
    return None


ALWAYS: Final[tuple[Always, ...]] = (
    epoch_counts_elections,
    one_actor_per_epoch,
    fenced_writes,
    followed_epochs_are_monotone,
    leader_epoch_is_monotone,
    one_leader_per_epoch,
    orders_tell_what_was_written,
    leader_is_in_sync,
    elections_are_clean,
    partitions_begin_at_zero,
)

# ---- once faults are over and there was time


def one_controller_acts(cluster: Cluster) -> str | None:
    """Exactly one, in the newest epoch, and `/controller` names it."""
    acting = [b for b in cluster.running if b.controller.is_active]
    node = cluster.tree.get(znodes.CONTROLLER)
    holder = znodes.decode_controller(node.data) if node else None
    if len(acting) != 1 or holder is None or holder.broker != acting[0].number:
        return f"{[b.number for b in acting]} act as controller, /controller names {holder}"
    if acting[0].controller.epoch != cluster.history.epoch:
        return f"broker {acting[0].number} acts in epoch {acting[0].controller.epoch}, not {cluster.history.epoch}"
    return None


def registrations_are_true(cluster: Cluster) -> str | None:
    """Every running broker is registered by its own session, under the epoch that it believes."""
    for broker in cluster.running:
        node = cluster.tree.get(znodes.broker_path(broker.number))
        if node is None:
            return f"broker {broker.number} runs and is not registered"
        session = broker.sessions.store.client.session_id
        if (node.owner, node.czxid) != (session, broker.broker_epoch):
            return (
                f"broker {broker.number} believes in epoch {broker.broker_epoch} of session {session:x}, registered is"
                f" {node.czxid} of {node.owner:x}"
            )
    return None


def every_partition_is_led(cluster: Cluster) -> str | None:
    """A partition with a live member of its ISR has a live leader; a topic's partitions all have a state."""
    live = {b.number for b in cluster.running}
    for topic, partitions in cluster.history.assignments.items():
        for number in partitions:
            p = TopicPartition(topic, number)
            state = _newest(cluster, p)
            if state is None:
                if live & set(partitions[number]):
                    return f"{p} has no state, although replicas of it run"
            elif live & set(state.isr) and state.leader not in live:
                return f"{p}: leader {state.leader} does not run, of ISR {state.isr} {live & set(state.isr)} do"
    return None


def isrs_are_whole(cluster: Cluster) -> str | None:
    """Every running replica is in the ISR again."""
    live = {b.number for b in cluster.running}
    for p, versions in cluster.history.states.items():
        replicas = cluster.history.assignments[p.topic][p.partition]
        state = versions[-1]
        if state.leader in live and set(state.isr) != live & set(replicas):
            return f"{p}: ISR {state.isr}, of replicas {replicas} {sorted(live)} run"
    return None


def everybody_knows(cluster: Cluster) -> str | None:
    """Each replica has the newest leadership of its partitions, each broker's metadata that of all."""
    for broker in cluster.running:
        for p, versions in cluster.history.states.items():
            newest = versions[-1]
            told = broker.replicas.get(p)
            if broker.number in cluster.history.assignments[p.topic][p.partition] and (
                told is None or (told.leader, told.leader_epoch) != (newest.leader, newest.leader_epoch)
            ):
                return f"{p}: replica {broker.number} was told {told}, the newest is {newest}"
            known = broker.cache.state(p)
            if known is None or (known.leader, known.leader_epoch, tuple(known.isr)) != (
                newest.leader,
                newest.leader_epoch,
                newest.isr,
            ):
                return f"{p}: broker {broker.number} has metadata {known}, the newest is {newest}"
        if set(broker.cache.brokers) != {b.number for b in cluster.running}:
            return f"broker {broker.number} believes that {sorted(broker.cache.brokers)} live"
    return None


def memory_equals_zookeeper(cluster: Cluster) -> str | None:
    """What the controller remembers of partitions and brokers is what the znodes say."""
    for broker in cluster.running:
        bench = broker.controller.bench
        if bench is None:
            continue
        for p, versions in cluster.history.states.items():
            known = bench.context.partition(p.topic, p.partition)
            if known is None or known.leadership != versions[-1]:
                return f"{p}: the controller remembers {known and known.leadership}, ZooKeeper has {versions[-1]}"
        if set(bench.context.registered) != {b.number for b in cluster.running}:
            return f"the controller believes that {sorted(bench.context.registered)} are registered"
    return None


def _newest(cluster: Cluster, p: TopicPartition) -> LeaderAndIsr | None:
    versions = cluster.history.states.get(p)
    return versions[-1] if versions else None


AT_REST: Final[tuple[AtRest, ...]] = (
    one_controller_acts,
    registrations_are_true,
    every_partition_is_led,
    isrs_are_whole,
    everybody_knows,
    memory_equals_zookeeper,
)
