"""Checks of the controller, the brokers, and znodes as such."""

from collections.abc import Iterator

from klamm.audit import remedies
from klamm.audit.finding import SubjectFinding, critical, notice, warning
from klamm.audit.snapshot import Snapshot
from klamm.controller.decisions.features import supports
from klamm.model.ids import BrokerId
from klamm.zk import znodes

# ---- the controller


def controller(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report a missing or unregistered controller, and controller znodes that no session or another session owns."""
    kind, at = "controller", znodes.CONTROLLER
    if s.controller is None:
        if at not in s.malformed:
            why = "there is no controller: no leader is elected and no request is handled"
            remedy = "start a broker; if brokers are running, look at the logs to see why none becomes controller"
            yield critical(kind, at, why, remedy)
    elif s.is_kraft:
        why = f"KRaft controller {s.controller} is active: the cluster is being migrated to KRaft"
        yield notice(kind, at, why, remedies.NOTHING)
    elif s.controller_ownership.owner_session == 0:
        why = "the znode is not ephemeral: no broker owns it, and none can become controller"
        yield critical(kind, at, why, remedies.reelect(s))
    elif s.controller not in s.broker_ownership:
        why = f"it names broker {s.controller}, which is not registered: brokers may not receive its requests"
        remedy = (
            f"restart broker {s.controller} if it is running: it registers at start; otherwise {remedies.reelect(s)}"
        )
        yield critical(kind, at, why, remedy)
    elif s.broker_ownership[s.controller].owner_session != s.controller_ownership.owner_session:
        why = f"an earlier session of broker {s.controller} owns it: no controller is active (KAFKA-13407)"
        yield critical(kind, at, why, remedies.reelect(s))


def controller_epoch(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report a controller epoch that differs from the number of elections, or is below that of a partition state."""
    kind, at = "controller epoch", znodes.CONTROLLER_EPOCH
    if s.controller_epoch is None:
        if s.controller is not None and at not in s.malformed:
            why = "there is a controller, but no controller epoch that fences its writes"
            yield critical(kind, at, why, remedies.raise_controller_epoch(s))
        return
    if s.controller_epoch != s.controller_epoch_version:
        why = (
            f"the epoch is {s.controller_epoch}, but its znode was written {s.controller_epoch_version} times: "
            "it was changed by hand, or ZooKeeper was restored from a backup"
        )
        yield notice(kind, at, why, "nothing to do if it is higher than the controller epoch of every partition state")
    for p, state in s.states.items():
        if state.controller_epoch > s.controller_epoch:
            why = (
                f"the partition state has a higher controller epoch than {s.controller_epoch}: no controller may "
                "change it"
            )
            yield critical("epoch gap", str(p), why, remedies.raise_controller_epoch(s))


# ---- brokers


def registrations(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report registrations that no session owns."""
    for broker, ownership in s.broker_ownership.items():
        if ownership.owner_session == 0:
            path = znodes.broker_path(broker)
            why = "the znode is not ephemeral: the broker counts as alive even when it is not running"
            remedy = f"{remedies.delete(s, path)}; if broker {broker} is running, restart it"
            yield critical("registration", path, why, remedy)
    for name in s.malformed_ids:
        path = f"{znodes.BROKER_IDS}/{name}"
        why = "this is not a broker id: Apache Kafka's brokers and controllers fail to read the list"
        yield critical("registration", path, why, remedies.delete(s, path))


def features(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report brokers that do not support the finalized features; the controller ignores them."""
    for broker in s.brokers:
        if lacking := unsupported_features(s, broker):
            levels = ", ".join(f"{name} at level {s.features[name]}" for name in lacking)
            why = f"it does not support {levels}, finalized in {remedies.FEATURE}: the controller ignores the broker"
            yield critical("features", f"broker {broker}", why, remedies.remove_features(s, lacking))


def missing_brokers(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report brokers that have replicas and are not registered."""
    replicas: dict[BrokerId, int] = {}
    for assignment in s.assignments.values():
        for broker in assignment.replicas:
            if broker not in s.live:
                replicas[broker] = replicas.get(broker, 0) + 1
    for broker, count in sorted(replicas.items()):
        why = f"it is not registered and has {count:,} replica{'s' if count > 1 else ''}"
        yield warning("broker gone", f"broker {broker}", why, remedies.restart_or_replace(s, broker))


# ---- malformed and unreadable znodes


def malformed(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report required znodes that are missing, and znodes that cannot be read or decoded."""
    for path, why in s.malformed.items():
        yield critical("malformed znode", path, why, remedies.repair_malformed(s, path))
    for path in s.missing:
        why = "it does not exist, but brokers and the controller need it: ZooKeeper was partly restored"
        yield warning("missing znode", path, why, remedies.set_znode(s, path, ""))
    for path, why in s.unreadable.items():
        remedy = "run the audit with credentials that may read it, for example --auth digest:USER:PASSWORD"
        yield warning("unreadable znode", path, why, remedy)


def topic_ids(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report topics without an id, and ids that two topics share."""
    seen: dict[object, str] = {}
    for topic, topic_id in s.topic_ids.items():
        if topic_id is None:
            why = "it has no topic id: the next controller assigns one (inter.broker.protocol.version 2.8 and newer)"
            remedy = (
                f"{remedies.NOTHING}; but if its partition.metadata files on the brokers contain an id (after a "
                "restore from an older backup), write that id into its znode first, or brokers reject its replicas"
            )
            yield notice("topic id", topic, why, remedy)
        elif (other := seen.setdefault(topic_id, topic)) != topic:
            why = f"it has the same topic id as {other}: brokers confuse the two"
            yield critical("topic id", topic, why, "create a new topic and copy its records")


def orphaned_configs(s: Snapshot) -> Iterator[SubjectFinding]:
    """Report configs of topics that do not exist."""
    for topic in s.configs:
        if topic not in s.topic_ids and znodes.topic_path(topic) not in s.malformed:
            why = "the topic does not exist; a new topic with this name would inherit the config"
            path = znodes.topic_config_path(topic)
            yield notice(
                "orphaned config",
                topic,
                why,
                f"{remedies.delete(s, path)}, unless the topic is being created right now",
            )


def unsupported_features(s: Snapshot, broker: BrokerId) -> list[str]:
    """Finalized features that a registered broker does not support."""
    supported = s.brokers[broker].features
    return [name for name, level in s.features.items() if not supports(supported, {name: level})]
