"""Remedies for findings: commands that can be copied as they are, with the addresses that the audit knows.

Each was tried on the damage it repairs. Brokers reject old epochs, so a restored state gets a new leader epoch.
"""

import re
from collections.abc import Iterable
from typing import Final

from msgspec.json import encode

from klamm.audit.snapshot import OpenTransaction, Snapshot
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import SecurityProtocol
from klamm.model.ids import NO_BROKER, BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.model.topic_ids import ZERO_ID, id_to_text
from klamm.zk import znodes

NOTHING: Final = "nothing to do: the cluster repairs this by itself"
PRODUCER_IDS: Final = "/latest_producer_id_block"
FEATURE: Final = "/feature"

_STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_TOPIC: Final = re.compile(r"/brokers/topics/([^/]+)")
_ID: Final = re.compile(r"/brokers/ids/(.+)")


def reelect(s: Snapshot) -> str:
    """The command that elects a new controller."""
    return f"klamm controller reelect --zookeeper {s.connect} (the next controller reads everything again)"


def delete(s: Snapshot, path: str, *, recursive: bool = False) -> str:
    """The command that deletes a znode."""
    return f"klamm zk delete {_quoted_path(path)}{' --recursive' if recursive else ''} --zookeeper {s.connect}"


def set_znode(s: Snapshot, path: str, value: str) -> str:
    """The command that writes a znode."""
    return f"klamm zk set {_quoted_path(path)} '{value}' --zookeeper {s.connect}"


def _quoted_path(path: str) -> str:
    """Return the path for a shell command, in quotes where it needs them."""
    return path if re.fullmatch(r"[\w./-]+", path) else f"'{path}'"


def bootstrap_option(s: Snapshot) -> str:
    """Return the option `-b HOST:PORT` of a live broker with a PLAINTEXT listener; empty when there is none."""
    for registration in s.brokers.values():
        for endpoint in registration.broker.endpoints:
            if endpoint.security_protocol is SecurityProtocol.PLAINTEXT:
                return f" -b {endpoint.host}:{endpoint.port}"
    return ""


def abort_transaction(s: Snapshot, transaction: OpenTransaction) -> str:
    """The command that aborts an open transaction."""
    topic, partition = transaction.partition
    return (
        f"klamm transactions abort{bootstrap_option(s) or ' -b HOST:PORT'} --topic {topic} --partition {partition} "
        f"--start-offset {transaction.start_offset} (its records are dropped)"
    )


def repair_coordinators() -> str:
    """What to do before an open transaction may be aborted: its coordinator may still commit it."""
    return (
        "make all brokers and the partitions of __transaction_state available, and repeat the audit: the coordinator "
        "may still commit it"
    )


# ---- brokers


def start(brokers: Iterable[BrokerId]) -> str:
    """The remedy text that says to start all of these brokers."""
    return "start " + " and ".join(f"broker {b}" for b in brokers)


def start_one_of(brokers: Iterable[BrokerId]) -> str:
    """The remedy text that says to start any one of these brokers."""
    return "start " + " or ".join(f"broker {b}" for b in brokers)


def restart_or_replace(s: Snapshot, broker: BrokerId) -> str:
    """The remedy text for a dead broker: start it, or move its replicas to other brokers."""
    back = f"start broker {broker} (restart it if its process hangs)"
    live = s.live
    if any(broker in a.replicas and live.issubset(a.replicas) for a in s.assignments.values()):
        return f"{back}; no other broker could take all its replicas"
    where, plan = bootstrap_option(s), f"plan-without-{broker}"
    return (
        f"{back}, or move its replicas to other brokers: "
        f"klamm reassign plan --remove-broker {broker} --out {plan}{where}, "
        f"then klamm reassign apply --reassignment-json-file {plan}/wave-001.json{where}, and so on for each wave"
    )


def catch_up(s: Snapshot, missing: Iterable[BrokerId]) -> str:
    """The remedy text for replicas that are not in the ISR: how to bring them back."""
    dead = [b for b in missing if b not in s.live]
    return (
        start(dead)
        if dead
        else (
            f"find out why these brokers do not catch up: klamm brokers --log-dirs{bootstrap_option(s)} shows failed "
            "directories, their logs show rejected replicas; otherwise check their network and disks"
        )
    )


def lead_again(s: Snapshot, live: Iterable[BrokerId]) -> str:
    """The remedy text for a partition whose ISR is alive but which has no leader.

    Only brokers know of failed log directories; ZooKeeper does not.
    """
    brokers = " and ".join(f"broker {b}" for b in live)
    return (
        f"klamm brokers --log-dirs{bootstrap_option(s)} shows failed directories: repair the disk and restart "
        f"{brokers}; if none failed, {reelect(s)}"
    )


# ---- partitions


def elect_preferred(s: Snapshot) -> str:
    """The command that elects all preferred leaders."""
    return f"klamm elect --election-type preferred --all-topic-partitions{bootstrap_option(s)}"


def elect_unclean(s: Snapshot, p: TopicPartition, candidates: Iterable[BrokerId]) -> str:
    """The command that elects a leader from outside the ISR."""
    names = " or ".join(map(str, candidates))
    command = f"klamm elect --election-type unclean --topic {p.topic} --partition {p.partition}{bootstrap_option(s)}"
    return f"{command} (new leader: {names})"


def cancel_reassignment(s: Snapshot, topic: str) -> str:
    """The command that cancels the reassignments of a topic."""
    return f"klamm reassign cancel --topic {topic}{bootstrap_option(s)}"


def first_state(s: Snapshot, p: TopicPartition) -> str:
    """The remedy text for a partition without a state znode: how to create one.

    A new state znode begins with leader epoch 0, which brokers that led or followed the partition before reject.
    """
    return (
        f"klamm explain {p} --zookeeper {s.connect} shows the command that restores it, if klamm's journal has the "
        f"state; then {reelect(s)}. If the journal does not have it, only reelect. If the partition had records, "
        "then also restart its brokers, because they reject leader epochs that start again at 0 (Apache "
        "Kafka's brokers also partition epochs)"
    )


def add_leader_to_replicas(s: Snapshot, p: TopicPartition, leader: BrokerId) -> str:
    """The command that reassigns a partition so that its leader is one of its replicas.

    The leader has the records, and the other replicas copy them from it.
    """
    return reassign(s, p, [*s.assignments[p].replicas, leader])


def remove_features(s: Snapshot, features: Iterable[str]) -> str:
    """The remedy text for finalized features that brokers do not support: upgrade these, or remove the features."""
    kept = {name: {"max_version_level": level} for name, level in s.features.items() if name not in features}
    document = encode({"version": 2, "status": 1, "features": kept}).decode()
    return f"upgrade these brokers; or, if that is not possible, {set_znode(s, FEATURE, document)}, then {reelect(s)}"


def reassign(s: Snapshot, p: TopicPartition, replicas: Iterable[BrokerId]) -> str:
    """The command that reassigns a partition to these replicas."""
    entry = {"topic": p.topic, "partition": p.partition, "replicas": list(dict.fromkeys(replicas))}
    document = encode({"version": 1, "partitions": [entry]}).decode()
    return (
        f"echo '{document}' > move.json; klamm reassign apply --reassignment-json-file move.json{bootstrap_option(s)}"
    )


def restore_assignment(s: Snapshot, p: TopicPartition) -> str:
    """The command that gives replicas to a partition without any: those of its ISR, or any live broker."""
    state = s.states.get(p)
    replicas = (state.isr if state else ()) or tuple(sorted(s.live)[:1])
    partitions = {at.partition: a for at, a in s.assignments.items() if at.topic == p.topic}
    repaired = {**partitions, p.partition: ReplicaAssignment(replicas)}
    return set_znode(s, znodes.topic_path(p.topic), znodes.encode_topic(s.topic_ids.get(p.topic), repaired).decode())


def write_valid_isr(s: Snapshot, p: TopicPartition, state: LeaderAndIsr) -> str:
    """The command that writes a partition state whose ISR contains the leader and only replicas.

    It has the next leader epoch, or brokers would keep the old state; a controller accepts any ISR that it reads.
    """
    replicas, live = s.assignments[p].replicas, s.live
    members = [b for b in state.isr if b in replicas]
    leader = next((b for b in (state.leader, *members) if b in replicas and b in live), NO_BROKER)
    isr = [*([leader] if leader in live else []), *(b for b in members if b != leader)]
    if not isr:
        others = [b for b in replicas if b in live]
        return elect_unclean(s, p, others) if others else start_one_of(replicas)
    return (
        f"{set_znode(s, znodes.state_path(p), state_text(s, leader, state.leader_epoch + 1, isr))}, then {reelect(s)}"
    )


def state_text(s: Snapshot, leader: int, leader_epoch: int, isr: Iterable[int]) -> str:
    """A partition state as JSON."""
    epoch = s.controller_epoch if s.controller_epoch is not None else highest_controller_epoch(s)
    facts = {"controller_epoch": epoch, "leader": leader, "version": 1, "leader_epoch": leader_epoch, "isr": [*isr]}
    return encode(facts).decode()


def highest_controller_epoch(s: Snapshot) -> int:
    """The highest controller epoch of the cluster and of all partition states."""
    return max([s.controller_epoch or 1, *(state.controller_epoch for state in s.states.values())])


def raise_controller_epoch(s: Snapshot) -> str:
    """The command that raises the controller epoch to the highest of all partition states.

    A new controller has to be elected to read it.
    """
    return f"{set_znode(s, znodes.CONTROLLER_EPOCH, str(highest_controller_epoch(s)))}, then {reelect(s)}"


# ---- configs


def unset_broker_configs(s: Snapshot, broker: str, keys: Iterable[str]) -> str:
    """The remedy text that says how to remove configs of a broker.

    Only the broker itself can remove them, so it must be alive.
    """
    alive = broker in {str(b) for b in s.live}
    when = "" if alive else f"when broker {broker} is back: "
    return f"{when}{_unset_command(f'--broker {broker}', keys)}{bootstrap_option(s)}"


def unset_topic_configs(s: Snapshot, topic: str, keys: Iterable[str]) -> str:
    """The command that removes configs of a topic."""
    return f"{_unset_command(f'--topic {topic}', keys)}{bootstrap_option(s)}"


def _unset_command(whose: str, keys: Iterable[str]) -> str:
    """Return the command that removes these configs; `whose` is the option that names the entity."""
    return f"klamm config unset {whose} {' '.join(keys)}"


def restore_topic_id(s: Snapshot, topic: str) -> str:
    """The command that writes the topic znode with the topic id of the brokers' logs.

    `ID` stands for that id in the command.
    """
    partitions = {at.partition: a for at, a in s.assignments.items() if at.topic == topic}
    document = znodes.encode_topic(ZERO_ID, partitions).decode().replace(id_to_text(ZERO_ID), "ID")
    return set_znode(s, znodes.topic_path(topic), document)


# ---- malformed znodes


def repair_malformed(s: Snapshot, path: str) -> str:
    """The remedy text for a znode that cannot be decoded."""
    if path == znodes.CONTROLLER:
        return reelect(s)
    if path == znodes.CONTROLLER_EPOCH:
        return raise_controller_epoch(s)
    if path == FEATURE:
        return f"{delete(s, path)}, then {reelect(s)}; then finalize the features again"
    if path == PRODUCER_IDS:
        block = {"version": 1, "broker": 0, "block_start": "1000000000000", "block_end": "1000000000999"}
        return f"{set_znode(s, path, encode(block).decode())} (higher than all ids in use; never delete this znode)"
    if found := _ID.fullmatch(path):
        return f"{delete(s, path)}; if broker {found[1]} is running, restart it"
    if found := _STATE.fullmatch(path):
        return _repair_state(s, TopicPartition(found[1], int(found[2])), path)
    if found := _TOPIC.fullmatch(path):
        return _repair_topic(s, found[1], path)
    if path.startswith("/config/"):
        empty = set_znode(s, path, '{"version":1,"config":{}}')
        shown = f"klamm zk get {_quoted_path(path)} --zookeeper {s.connect} shows what it held"
        return f"{shown}; {empty}, then set the configs that you need with klamm config set"
    return f"{delete(s, path)} (then repeat the request)"


def _repair_state(s: Snapshot, p: TopicPartition, path: str) -> str:
    """The remedy text for a malformed state znode."""
    pattern = set_znode(s, path, state_text(s, 0, 0, []).replace(":0", ":N").replace("[]", "[N,..]"))
    return (
        f"klamm explain {p} --zookeeper {s.connect} shows the command, if klamm's journal has the state; otherwise "
        f"{pattern} with leader and ISR from klamm topics describe --topic {p.topic}{bootstrap_option(s)}, and a "
        f"leader epoch higher than in its leader-epoch-checkpoint; then {reelect(s)}. Never delete the znode: epochs "
        "would start again at 0, and brokers would reject them"
    )


def _repair_topic(s: Snapshot, topic: str, path: str) -> str:
    """The remedy text for a malformed topic znode."""
    example = '{"version":3,"topic_id":"ID","partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{}}'
    return (
        "take the assignment from the brokers, which keep it until they restart: klamm topics describe "
        f"--topic {topic} --json{bootstrap_option(s)}; or from a backup; "
        f"then {set_znode(s, path, example)}. Delete it only if no such topic ever existed"
    )
