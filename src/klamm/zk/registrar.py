"""Registers a broker in ZooKeeper, and removes the registration that an earlier session of this process left.

Kafka recognises one earlier session. Here all sessions and payloads of this process are recognised, because a session
can be granted without the client learning its id (KAFKA-14845). Source: KafkaZkClient.registerBroker, CheckedEphemeral
(3.9).
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from klamm.model.brokers import Broker
from klamm.model.errors import KlammError
from klamm.zk.errors import NoNode, ZkCode, error_of
from klamm.zk.operations import Create, Set
from klamm.zk.port import ZooKeeperClient
from klamm.zk.registrations import NO_FEATURES, VERSION_WITH_FEATURES, FeatureRange, encode_registration
from klamm.zk.znodes import broker_path

RETRY_S = 0.25


class BrokerIdTaken(KlammError):
    """A live session of another process owns the registration of this id."""


class BrokerRegistrar:
    """Registers one broker over all sessions of the process; remembers its payloads and sessions."""

    def __init__(
        self,
        broker: Broker,
        jmx_port: int = -1,
        version: int = VERSION_WITH_FEATURES,
        features: Mapping[str, FeatureRange] = NO_FEATURES,
    ) -> None:
        self._broker = broker
        self._features = features
        self._jmx_port = jmx_port
        self._version = version
        self._sessions: set[int] = set()
        self._payloads: set[bytes] = set()

    def _payload(self, now_ms: int) -> bytes:
        """The content of the broker's znode, with this registration time."""
        return encode_registration(self._broker, now_ms, self._jmx_port, self._version, self._features)

    async def register(self, client: ZooKeeperClient, now_ms: int) -> int:
        """Register the broker; returns the broker epoch, which is the znode's czxid. Raises BrokerIdTaken."""
        path = broker_path(self._broker.id)
        payload = self._payload(now_ms)
        self._payloads.add(payload)
        while True:
            results = await client.multi([Create(path, None, ephemeral=True), Set(path, payload, 0)])
            refusal = next((r.code for r in results if r.code is not ZkCode.OK), None)
            if refusal is None:
                stat = results[1].stat
                assert stat is not None, "ZooKeeper returns a stat for each set that succeeds"
                self._sessions.add(client.session_id)
                return stat.czxid
            if refusal is not ZkCode.NODE_EXISTS:
                raise error_of(refusal, path)
            try:
                epoch = await self._resolve_conflict(client, path)
            except BrokerIdTaken:
                self._payloads.discard(payload)  # it was not written; a caller that retries for days brings thousands
                raise
            if epoch is not None:
                self._sessions.add(client.session_id)
                return epoch

    def change(self, broker: Broker) -> None:
        """Set the broker that later registrations announce."""
        self._broker = broker

    async def update(self, client: Callable[[], ZooKeeperClient], now_ms: Callable[[], int]) -> None:
        """Write the changed broker into the existing registration, with retries; its czxid stays the same.

        Without a registration nothing is written: the next registration contains the change.
        """
        path = broker_path(self._broker.id)
        while True:
            try:
                session = client()
                _, stat = await session.get(path)
                if stat.ephemeral_owner == session.session_id:
                    payload = self._payload(now_ms())
                    self._payloads.add(payload)
                    await session.set(path, payload)
                return
            except NoNode:
                return
            except KlammError:
                await asyncio.sleep(RETRY_S)

    async def register_when_free(self, client: ZooKeeperClient, now_ms: int, timeout_s: float) -> int:
        """Register, and wait up to `timeout_s` for another session's registration to end. Raises BrokerIdTaken."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            try:
                return await self.register(client, now_ms)
            except BrokerIdTaken:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
            await asyncio.sleep(RETRY_S)
            path = broker_path(self._broker.id)  # a look costs less than a write that is refused
            while asyncio.get_running_loop().time() < deadline and await client.exists(path):  # noqa: ASYNC110
                await asyncio.sleep(RETRY_S)

    async def _resolve_conflict(self, client: ZooKeeperClient, path: str) -> int | None:
        """Handle an existing registration: the epoch if this session owns it, else None once it is gone.

        One of an earlier session of this process is deleted. Raises BrokerIdTaken for one of another process.
        """
        try:
            data, stat = await client.get(path)
        except NoNode:
            return None
        if stat.ephemeral_owner == client.session_id:
            return stat.czxid
        if stat.ephemeral_owner in self._sessions or data in self._payloads:
            with contextlib.suppress(NoNode):
                await client.delete(path)
            return None
        raise BrokerIdTaken(
            f"{path} belongs to the ZooKeeper session 0x{stat.ephemeral_owner:x}: another process runs as broker"
            f" {self._broker.id}, or the session of an earlier process has not expired yet"
        )
