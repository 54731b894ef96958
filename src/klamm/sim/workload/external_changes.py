"""Verbs for changes that other programs and people make in ZooKeeper: tokens, foreign brokers, features, topics."""

import asyncio
from typing import Final

from klamm.controller.decisions.features import FeatureUpdate, UpgradeType
from klamm.model.assignment import ReplicaAssignment
from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.actions import ClusterUnderTest, Draw, call_after, restart
from klamm.sim.nodes.settings import FEATURE
from klamm.sim.workload.reassignments import acting_controller, await_on_node
from klamm.zk import znodes
from klamm.zk.acl import OPEN_ACL, Acl, Permission
from klamm.zk.admin_znodes import FinalizedFeatures, encode_features
from klamm.zk.delegation_tokens import TOKENS
from klamm.zk.errors import NodeExists, NoNode
from klamm.zk.registrations import encode_registration

_FOREIGN: Final = 88
_FOREIGN_LISTENERS: Final = {
    "another listener": Endpoint("ELSEWHERE", SecurityProtocol.PLAINTEXT, "nowhere", 9092),
    "the brokers' listener": Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "nowhere", 9092),
}
_HOUR_MS: Final = 3_600_000
_RETRY_INTERVAL_S: Final = 0.5
_CHANGES: Final = 4
_REQUEST_TIMEOUT_S: Final = 1.0
_FORBIDDEN_PERMISSIONS: Final = {
    "to read": Permission.READ,
    "to change": Permission.CREATE | Permission.WRITE | Permission.DELETE,
}
_MAX_DOWNTIME_S: Final = 1.0


async def issue_tokens(cluster: ClusterUnderTest, draw: Draw) -> None:
    """Create three delegation tokens: one expired, one valid, one unreadable."""
    name = draw("name", lambda rng: f"token{rng.randint(1, 99)}")
    now_ms = cluster.admin.clock.now_ms()
    cluster.log(f"delegation tokens {name}-* are issued")
    await cluster.store.client.ensure_path(TOKENS)
    for kind, ends_ms in (("over", now_ms - _HOUR_MS), ("good", now_ms + _HOUR_MS), ("scrap", None)):
        text = "{" if ends_ms is None else f'{{"maxTimestamp":{ends_ms},"expiryTimestamp":{ends_ms}}}'
        try:
            await cluster.store.client.create(f"{TOKENS}/{name}-{kind}", text.encode())
        except NodeExists:
            return


async def foreign_broker(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A broker that cannot be reached registers, changes its listeners, and leaves."""
    first = draw("first", lambda rng: rng.choice(tuple(_FOREIGN_LISTENERS)))
    for_s = draw("for_s", lambda rng: 4 * rng.random())
    path, client = znodes.broker_path(BrokerId(_FOREIGN)), cluster.store.client
    try:
        await client.create(path, _registration(cluster, first), ephemeral=True)
    except NodeExists:
        return
    cluster.log(f"broker {_FOREIGN} registers, with {first}")
    try:
        for listener in reversed(_FOREIGN_LISTENERS):
            await asyncio.sleep(for_s / _CHANGES)
            cluster.log(f"broker {_FOREIGN} has {listener} now")
            await client.set(path, _registration(cluster, listener))
        await asyncio.sleep(for_s / _CHANGES)
        await client.set(path, b"{")
        await asyncio.sleep(for_s / _CHANGES)
    finally:
        await client.delete(path)


def _registration(cluster: ClusterUnderTest, listener: str) -> bytes:
    """The registration of the foreign broker with this listener."""
    broker = Broker(BrokerId(_FOREIGN), (_FOREIGN_LISTENERS[listener],))
    return encode_registration(broker, cluster.admin.clock.now_ms())


async def finalize_feature(cluster: ClusterUnderTest, draw: Draw) -> None:
    """ZooKeeper holds a finalized feature that no broker supports; an operator deletes it."""
    level = draw("level", lambda rng: rng.randint(1, 3))
    cluster.log(f"feature {FEATURE} {level} is finalized by another client")
    await cluster.store.client.set(znodes.FEATURE, encode_features(FinalizedFeatures(2, True, {FEATURE: level})))
    deletion = FeatureUpdate(FEATURE, 0, UpgradeType.SAFE_DOWNGRADE)
    odd = [FeatureUpdate(FEATURE, level), FeatureUpdate(FEATURE, level - 1), FeatureUpdate("", 1)]
    odd += [FeatureUpdate(FEATURE, level + 1, UpgradeType.SAFE_DOWNGRADE), FeatureUpdate(FEATURE, 1, 9)]
    odd += [FeatureUpdate(FEATURE, 0), FeatureUpdate("nope", 0, UpgradeType.SAFE_DOWNGRADE)]
    while True:
        if (node := acting_controller(cluster)) is not None:
            ask = node.broker.controller.update_features
            for update in odd:
                await await_on_node(cluster, node, ask, [update], _REQUEST_TIMEOUT_S, validate_only=False)
            await await_on_node(cluster, node, ask, [deletion], _REQUEST_TIMEOUT_S, validate_only=True)
            answer = await await_on_node(cluster, node, ask, [deletion], _REQUEST_TIMEOUT_S, validate_only=False)
            cluster.log(f"the answer to the deletion of the feature: {answer}")
            found, _ = await cluster.store.client.get(znodes.FEATURE)
            if FEATURE.encode() not in (found or b""):
                return
        await asyncio.sleep(_RETRY_INTERVAL_S)


async def repair_unreadable_topic(cluster: ClusterUnderTest, draw: Draw) -> None:
    """A topic znode is malformed, perhaps with a deletion request, and is corrected after a while."""
    topic = draw("topic", lambda rng: f"scrap{rng.randint(1, 2)}")
    replicas = draw("replicas", lambda rng: rng.sample(list(cluster.nodes), 1))
    deletes = draw("deletes", lambda rng: rng.random() < 0.5)
    path, client = znodes.topic_path(topic), cluster.store.client
    if cluster.tree.get(path) is not None:
        return
    cluster.log(
        f"topic {topic} cannot be read, and is repaired later: {replicas}{', to be deleted' if deletes else ''}"
    )
    await client.create(path, b"{")
    try:
        if deletes:
            await client.create(znodes.delete_topic_path(topic), b"")
        await asyncio.sleep(_RETRY_INTERVAL_S)
    finally:
        repaired = {0: ReplicaAssignment(tuple(map(BrokerId, replicas)))}
        await client.set(path, znodes.encode_topic(None, repaired))


async def recreate_topic_in_zookeeper(cluster: ClusterUnderTest, draw: Draw) -> None:
    """Somebody deletes a topic's znodes and log without the controller, and recreates the topic immediately."""
    topic = draw("topic", lambda rng: f"hand{rng.randint(1, 2)}")
    number = draw("node", lambda rng: rng.choice(list(cluster.nodes)))
    assignment = {0: ReplicaAssignment((BrokerId(number),))}
    client, path = cluster.store.client, znodes.topic_path(topic)
    if cluster.tree.get(path) is not None:
        return
    await client.create(path, znodes.encode_topic(None, assignment))
    await asyncio.sleep(_RETRY_INTERVAL_S)
    cluster.log(f"the znodes of topic {topic} are deleted by another client, and created again")
    cluster.loop.kill(cluster.nodes[number].host)
    cluster.nodes[number].broker.replicas.logs.pop(TopicPartition(topic, 0), None)
    call_after(cluster, _MAX_DOWNTIME_S, restart, cluster, number)
    for below in ("/partitions/0/state", "/partitions/0", "/partitions", ""):
        try:
            await client.delete(path + below)
        except NoNode:
            continue
    await client.create(path, znodes.encode_topic(None, assignment))


async def forbid_by_acl(cluster: ClusterUnderTest, draw: Draw) -> None:
    """An ACL forbids reading, or changing, some znodes for a while."""
    paths = draw("paths", lambda rng: [znodes.ISR_CHANGES])
    what = draw("what", lambda rng: rng.choice(tuple(_FORBIDDEN_PERMISSIONS)))
    for_s = draw("for_s", lambda rng: 3 * rng.random())
    cluster.log(f"no client may {what.removeprefix('to ')} {paths} for {for_s} s")
    for path in paths:
        cluster.ensemble.write_acl(
            0, path, (Acl(Permission.ALL & ~_FORBIDDEN_PERMISSIONS[what], "world", "anyone"),), -1, ()
        )
        call_after(cluster, for_s, cluster.ensemble.write_acl, 0, path, OPEN_ACL, -1, ())


async def delete_znodes(cluster: ClusterUnderTest, draw: Draw) -> None:
    """Somebody deletes znodes directly: of a topic, `/controller`, or those that brokers create only at startup."""
    paths = draw("paths", lambda rng: [znodes.CONTROLLER])
    cluster.log(f"another client deletes {paths}")
    for path in paths:
        try:
            await cluster.store.client.delete(path)
        except NoNode:
            continue
