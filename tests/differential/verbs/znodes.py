"""Verbs: topics, their configurations and states, and notifications, written to ZooKeeper as tools and brokers do."""

import json
import uuid
from collections.abc import Mapping, Sequence

from tests.differential import normalize
from tests.differential.testbed import Testbed

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId, TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.zk import znodes
from klamm.zk.acl import OPEN_ACL, Acl, Permission
from klamm.zk.admin_znodes import (
    encode_config,
    encode_config_change,
    encode_isr_change,
    encode_preferred_election,
    encode_reassignment,
)
from klamm.zk.delegation_tokens import TOKEN_CHANGES, TOKENS
from klamm.zk.operations import Create
from klamm.zk.store import Store

NEVER_MS = 1 << 60


class ZnodeVerbs(Testbed):
    async def create_topic(
        self, name: str, assignment: Sequence[Sequence[int]], config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic by its znodes."""
        self.topic_ids[name] = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        await Store(self.client).create_topic(name, _assigned(assignment), self.topic_ids[name], config or {})
        await self.end_step(f"create {name} {assignment}{f' with {dict(config)}' if config else ''}")

    async def create_topic_without_id(self, name: str, assignment: Sequence[Sequence[int]]) -> None:
        """As brokers before 2.8 did; whoever gives it an id, that is its id from then on."""
        await Store(self.client).create_topic(name, _assigned(assignment), None, {})
        await self.end_step(f"create {name} {assignment} without an id")

    async def grow_topic(self, name: str, assignment: Sequence[Sequence[int]]) -> None:
        """`assignment` holds all its partitions, the old ones first."""
        content = znodes.encode_topic(self.topic_ids[name], _assigned(assignment))
        await self.client.set(znodes.topic_path(name), content)
        await self.end_step(f"grow {name} to {assignment}")

    async def write_assignment(
        self, name: str, replicas: Sequence[int], *, adding: Sequence[int], removing: Sequence[int]
    ) -> None:
        """Of its one partition, behind the controller's back, as if one had died in the middle of a reassignment."""
        assignment = ReplicaAssignment(*(tuple(map(BrokerId, each)) for each in (replicas, adding, removing)))
        await self.client.set(znodes.topic_path(name), znodes.encode_topic(self.topic_ids[name], {0: assignment}))
        await self.end_step(f"write the assignment of {name}-0: {replicas} adding {adding} removing {removing}")

    async def set_config(self, name: str, config: Mapping[str, str]) -> None:
        """Write the topic's config."""
        await Store(self.client).write_config("topics", name, config)
        await self.end_step(f"configure {name}: {dict(config)}")

    async def notify_config(self, topic: str) -> None:
        """Write a config change notification for the topic."""
        path = f"{znodes.CONFIG_CHANGES}/config_change_"
        await self.client.create(path, encode_config_change(f"topics/{topic}"), sequential=True)
        await self.end_step(f"notify of the configuration of {topic}")

    async def configure_brokers(self, config: Mapping[str, str]) -> None:
        """The default of all brokers, with its notification."""
        path = f"{znodes.CONFIG}/brokers/<default>"
        if await self.client.exists(path) is None:
            await self.client.create(path, encode_config(config))
        else:
            await self.client.set(path, encode_config(config))
        change = encode_config_change("brokers/<default>")
        await self.client.create(f"{znodes.CONFIG_CHANGES}/config_change_", change, sequential=True)
        await self.end_step(f"configure all brokers: {dict(config)}")

    async def delete_topic(self, *names: str) -> None:
        """As tools do: the request alone, several in one transaction."""
        await self.client.multi([Create(f"{znodes.DELETE_TOPICS}/{name}", None) for name in names])
        await self.end_step(f"request the deletion of {normalize.words(names)}")

    async def request_reassignment(self, targets: Mapping[tuple[str, int], Sequence[int]]) -> None:
        """As older tools do: the znode, which must not be there."""
        named = {TopicPartition(*p): tuple(map(BrokerId, replicas)) for p, replicas in targets.items()}
        await self.client.create(znodes.REASSIGN_PARTITIONS, encode_reassignment(named))
        text = normalize.words([f"{t}-{n} to {list(r)}" for (t, n), r in targets.items()])
        await self.end_step(f"request the reassignment of {text}")

    async def request_preferred(self, *partitions: tuple[str, int]) -> None:
        """As older tools do: the znode, which must not be there."""
        content = encode_preferred_election([TopicPartition(*p) for p in partitions])
        await self.client.create(znodes.PREFERRED_ELECTION, content)
        await self.end_step(f"request the preferred leader of {normalize.words([f'{t}-{n}' for t, n in partitions])}")

    async def forbid_writes(self, path: str) -> None:
        """Everybody may read there, nobody may change it or what is right below."""
        await self.client.set_acl(path, [Acl(Permission.READ | Permission.ADMIN, "world", "anyone")])
        await self.end_step(f"forbid writes to {path}")

    async def allow_writes(self, path: str) -> None:
        """End `forbid_writes`."""
        await self.client.set_acl(path, OPEN_ACL)
        await self.end_step(f"allow writes to {path}")

    async def write(self, path: str, content: str | None) -> None:
        """Write any content to any path, which may exist; None removes it with its children."""
        if content is None:
            if await self.client.exists(path) is not None:
                await self._remove(path)
        elif await self.client.exists(path) is None:
            if parent := path.rpartition("/")[0]:
                await self.client.ensure_path(parent)
            await self.client.create(path, content.encode())
        else:
            await self.client.set(path, content.encode())
        await self.end_step(f"write {path}: {content}")

    async def _remove(self, path: str) -> None:
        """Delete a znode with its children, if it exists."""
        for child in (await self.client.children(path))[0]:
            await self._remove(f"{path}/{child}")
        await self.client.delete(path)

    async def notify(self, directory: str, content: str) -> None:
        """A notification whose content may be anything; its number is ZooKeeper's."""
        await self.client.create(directory, content.encode(), sequential=True)
        await self.end_step(f"notify {directory}: {content}")

    async def write_state(
        self, topic: str, leader: int, isr: Sequence[int], leader_epoch: int, *, controller_epoch: int = 1
    ) -> None:
        """Behind the controller's back, as leaders before AlterPartition did."""
        state = LeaderAndIsr(BrokerId(leader), leader_epoch, tuple(map(BrokerId, isr)), controller_epoch)
        await self.client.set(znodes.state_path(TopicPartition(topic, 0)), znodes.encode_state(state))
        await self.end_step(f"write the state of {topic}-0: {leader} / {isr} / {leader_epoch}")

    async def leader_writes(self, topic: str, isr: Sequence[int], partition: int = 0) -> None:
        """The leader writes its ISR itself, as before AlterPartition; no step if there is no leader."""
        named = TopicPartition(topic, partition)
        state = await self.state(topic, partition)
        if state is None or state.leader not in self.brokers:
            return
        changed = state._replace(isr=tuple(map(BrokerId, isr)))
        await self.client.set(znodes.state_path(named), znodes.encode_state(changed), state.partition_epoch)
        await self.end_step(f"{state.leader} writes the ISR of {named}: {list(isr)}")

    async def notify_isrs(self, *partitions: tuple[str, int]) -> None:
        """Write an ISR change notification for these partitions."""
        change = encode_isr_change([TopicPartition(*p) for p in partitions])
        await self.client.create(f"{znodes.ISR_CHANGES}/isr_change_", change, sequential=True)
        await self.end_step(f"notify of the ISR of {normalize.words([f'{t}-{n}' for t, n in partitions])}")

    async def notify_isr(self, *topics: str) -> None:
        """Write an ISR change notification for partition 0 of these topics."""
        change = encode_isr_change([TopicPartition(topic, 0) for topic in topics])
        await self.client.create(f"{znodes.ISR_CHANGES}/isr_change_", change, sequential=True)
        await self.end_step(f"notify of the ISR of {normalize.words(topics)}")

    async def issue_token(self, token: str, *, max_ms: int = NEVER_MS, expiry_ms: int = NEVER_MS) -> None:
        """A delegation token as the node that issued it leaves it; one whose time is over is waited for to go."""
        path = f"{TOKENS}/{token}"
        issued = {"version": 3, "owner": "User:a", "tokenRequester": "User:a", "renewers": [], "issueTimestamp": 1}
        ends = {"maxTimestamp": max_ms, "expiryTimestamp": expiry_ms, "tokenId": token}
        await self.client.ensure_path(TOKENS)
        await self.client.ensure_path(TOKEN_CHANGES)
        known = len((await self.client.children(TOKEN_CHANGES))[0])
        await self.client.create(path, json.dumps(issued | ends).encode())
        await self.client.create(f"{TOKEN_CHANGES}/token_change_", token.encode(), sequential=True)
        if min(max_ms, expiry_ms) < NEVER_MS:  # a second notification follows when it is gone
            await self.wait_until(lambda stat: stat.num_children == known + 2, TOKEN_CHANGES)
        await self.end_step(f"issue token {token}, at most until {max_ms}, now until {expiry_ms}")

    async def log_dir_event(self, broker: int) -> None:
        """Write a notification of a failed log directory of this broker."""
        content = f'{{"version":1,"broker":{broker},"event":1}}'.encode()
        await self.client.create(f"{znodes.LOG_DIR_EVENTS}/log_dir_event_", content, sequential=True)
        await self.end_step(f"{broker} tells that a log directory failed")


def _assigned(assignment: Sequence[Sequence[int]]) -> dict[int, ReplicaAssignment]:
    """The replica lists as an assignment by partition."""
    return {i: ReplicaAssignment(tuple(map(BrokerId, replicas))) for i, replicas in enumerate(assignment)}
