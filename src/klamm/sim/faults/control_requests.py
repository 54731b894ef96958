"""Faults between the controller and brokers: requests delayed, answered late, delivered twice, handled slowly."""

from typing import Final

from klamm.sim.actions import ClusterUnderTest, Draw, ScheduledCluster, call_after
from klamm.sim.faults.aim import all_nodes, controllers, draw_node, node_names
from klamm.sim.faults.injection_points import Step, StepKind
from klamm.sim.faults.links import cut_for
from klamm.sim.nodes.broker import StubBroker
from klamm.sim.nodes.faulty_requests import ReceivedRequest
from klamm.sim.zookeeper.ensemble import InjectedFailure
from klamm.wire.api import ApiKey
from klamm.zk.operations import Delete
from klamm.zk.znodes import CONTROLLER

_MAX_S: Final = 20.0
_ECHOED: Final = (ApiKey.LEADER_AND_ISR.name, ApiKey.ALTER_PARTITION.name)


def delete_controller_znode(cluster: ScheduledCluster, draw: Draw) -> None:
    """An operator deletes `/controller`; often the controller is paused meanwhile: its session lives, its term ends."""
    acting = next(iter(controllers(cluster)), None)
    number = draw("node", lambda rng: acting)
    for_s = draw("frozen_s", lambda rng: 2 * rng.random() if rng.random() < 0.7 else 0.0)
    if number is not None and for_s and not (host := cluster.nodes[number].host).is_paused:
        cluster.log(f"{host!r} is paused for {for_s} s")
        cluster.loop.pause(host)
        call_after(cluster, for_s, cluster.loop.resume, host)
    _delete_controller_znode(cluster)


def _delete_controller_znode(cluster: ScheduledCluster) -> None:
    """Delete `/controller` unless the cluster is healed or has no quorum."""
    if cluster.ensemble.has_quorum and not cluster.is_healed:
        cluster.log("/controller is deleted")
        cluster.ensemble.write(0, [Delete(CONTROLLER)], ())


def delay_control_requests(cluster: ScheduledCluster, draw: Draw) -> None:
    """A controller's requests are delayed, and arrive after one to three other controllers were elected."""
    acting = next(iter(controllers(cluster)), None)
    number = draw("node", lambda rng: acting)
    if number is None:
        return
    terms = draw("terms", lambda rng: rng.randint(1, 3))
    name = f"node-{number}"
    others = [n for n in cluster.nodes if n != number]
    if not others:
        return
    cause = draw("cause", lambda rng: rng.choice(others))
    cluster.log(
        f"control requests from {name} are delayed; it has some to send, because node {cause} must register again"
    )
    cut_for(cluster, [(name, f"node-{n}") for n in others], 1.0 + 1.5 * terms)
    if cluster.ensemble.has_quorum and (session := cluster.nodes[cause].session):
        cluster.ensemble.end_session(session)
    for term in range(terms):
        call_after(cluster, 0.5 + 1.5 * term, _delete_controller_znode, cluster)


def delay_broker_responses(cluster: ScheduledCluster, draw: Draw) -> None:
    """Everything that brokers send to the controller is delayed for up to 40 seconds."""
    acting = next(iter(controllers(cluster)), None)
    number = draw("node", lambda rng: acting)
    if number is not None:
        name = f"node-{number}"
        for_s = draw("for_s", lambda rng: 2 * _MAX_S * rng.random())
        cut_for(cluster, [(other, name) for other in node_names(cluster) if other != name], for_s)


def handle_control_requests_slowly(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A broker takes seconds for each control request, so more requests queue."""
    number, _ = draw_node(cluster, draw)
    takes_s = draw("takes_s", lambda rng: rng.choice((0.5, 2.0, 6.0)))
    for_s = draw("for_s", lambda rng: _MAX_S * rng.random())
    broker = cluster.nodes[number].broker
    cluster.log(f"node {number} takes {takes_s} s for each control request, for {for_s} s")
    broker.requests.delay_s = takes_s
    call_after(cluster, for_s, _end_delay, broker)


def _end_delay(broker: StubBroker) -> None:
    """Let the broker answer control requests without delay again."""
    broker.requests.delay_s = 0.0


def redeliver_control_requests(cluster: ClusterUnderTest, draw: Draw) -> None:
    """Control requests that a broker, or its earlier process, has already received arrive again."""
    number = draw("node", lambda rng: rng.choice(list(all_nodes(cluster))))
    node = cluster.nodes[number]
    after_s = draw("after_s", lambda rng: rng.choice((0.0, 1.0, 5.0)) * rng.random())
    which = draw("which", lambda rng: sorted(rng.sample(range(8), 3)))
    earlier_requests = [node.broker.requests.received[n] for n in which if n < len(node.broker.requests.received)]
    if earlier_requests:
        cluster.log(f"{len(earlier_requests)} control requests reach node {number} once more, after {after_s} s")
        call_after(cluster, after_s, _redeliver, cluster, number, earlier_requests)


def duplicate_control_requests(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A LeaderAndIsr that a broker received before arrives again, during the next LeaderAndIsr or AlterPartition."""
    kind = StepKind(
        draw("kind", lambda rng: rng.choice((StepKind.CONTROL_REQUEST.value, StepKind.BROKER_REQUEST.value)))
    )
    left = draw("left", lambda rng: rng.randint(1, 8))
    back = draw("back", lambda rng: rng.choice((1, 1, 2, 3)))
    after_s = draw("after_s", lambda rng: rng.choice((0.0, 0.02)) * rng.random())

    def injection(step: Step) -> InjectedFailure | None:
        """Return the failure that the cluster injects at this step; None if the fault is for another step."""
        nonlocal left
        if step.kind is not kind or not step.actor or step.what not in _ECHOED:
            return None
        left -= 1
        if not left:
            cluster.injection_points.remove(injection)
        number = step.target if kind is StepKind.CONTROL_REQUEST else step.actor
        had = [r for r in cluster.nodes[number].broker.requests.received if r.request.api_key is ApiKey.LEADER_AND_ISR]
        if len(had) >= back:
            cluster.log(f"the LeaderAndIsr request {back} before the last comes twice to node {number}")
            call_after(cluster, after_s, _redeliver, cluster, number, [had[-back]])
        return None

    cluster.injection_points.set(injection)


def expire_follower_during_isr_change(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A follower's session ends while its leader sends AlterPartition, which is lost; control requests become slow."""
    takes_s = draw("takes_s", lambda rng: 0.3 + rng.random())

    def injection(step: Step) -> InjectedFailure | None:
        """Return the failure that the cluster injects at this step; None if the fault is for another step."""
        if step.what != ApiKey.ALTER_PARTITION.name or not cluster.ensemble.has_quorum:
            return None
        led = [v[-1].isr for v in cluster.history.states.versions.values() if v[-1].leader == step.actor]
        others = sorted({b for isr in led for b in isr} - {step.actor, step.target})
        session = next((cluster.nodes[b].session for b in others if b in cluster.nodes and cluster.nodes[b].session), 0)
        if not session:
            return None
        cluster.injection_points.remove(injection)
        cluster.log(
            f"session {session:x} of a follower ends while node {step.actor} asks for an ISR change, so that it must "
            "ask again"
        )
        cluster.ensemble.end_session(session)
        broker = cluster.nodes[step.actor].broker
        broker.requests.delay_s = takes_s
        call_after(cluster, 3 * takes_s, _end_delay, broker)
        return InjectedFailure.BEFORE

    cluster.injection_points.set(injection)


def _redeliver(cluster: ClusterUnderTest, number: int, earlier_requests: list[ReceivedRequest]) -> None:
    """Deliver these control requests to the node again, unless it is dead or the cluster is healed."""
    node = cluster.nodes[number]
    if node.host.is_alive and not cluster.is_healed:
        for earlier_request in earlier_requests:
            cluster.loop.call_on(node.host, cluster.loop.time(), node.broker.replay, earlier_request)
