"""The ports of a node, and the addresses it advertises for them."""

from klamm.broker.lifecycle import CannotStart
from klamm.config.node_config import NodeConfig
from klamm.model.brokers import Broker, Endpoint
from klamm.model.ids import BrokerId
from klamm.net.server import Handler, MayOverlap, Server
from klamm.runtime.network import Network, is_in_use, reason_of


class BoundListeners:
    """A part of a node: binds the ports before the logs are loaded, lets clients in after everything else has started.

    Linux allows two processes to bind one port; the second one to listen on it fails.
    """

    def __init__(self, server: Server, config: NodeConfig, network: Network) -> None:
        self._server = server
        self._config = config
        self._network = network
        self._ports: dict[str, int] = {}

    async def start(self) -> None:
        """Bind every listener's port. Raises CannotStart where one cannot be bound."""
        for endpoint in self._config.endpoints:
            try:
                self._ports[endpoint.listener] = await self._server.bind(
                    endpoint.listener, endpoint.host, endpoint.port, self._config.socket_listen_backlog_size
                )
            except OSError as error:
                raise cannot_bind(endpoint.host, endpoint.port, error, self._config.where("listeners")) from error

    async def open(self, handle: Handler, may_overlap: MayOverlap) -> None:
        """Accept connections on all listeners.

        Raises CannotStart where another process began to listen since `start`.
        """
        try:
            await self._server.start(handle, may_overlap)
        except OSError as error:
            where = self._config.where("listeners")
            raise CannotStart(
                f"Cannot listen on {', '.join(map(str, self._config.endpoints))}: {reason_of(error)}. Stop the process"
                f" that listens there, or change {where}."
            ) from error

    async def close(self) -> None:
        """Stop listening and close all client connections."""
        await self._server.close()

    def advertised_broker(self, broker_id: BrokerId, config: NodeConfig) -> Broker:
        """Return this broker as it is registered.

        Its listeners are those bound at the start, with their advertised addresses.
        """
        advertised = tuple(
            Endpoint(
                e.listener,
                e.security_protocol,
                e.host or self._network.host_name(),
                e.port or self._ports[e.listener],
            )
            for e in config.advertised_endpoints
            if e.listener in self._ports
        )
        return Broker(broker_id, advertised, config.broker_rack)


def cannot_bind(host: str, port: int, error: OSError, where: str) -> CannotStart:
    """The error for an address that cannot be bound; `where` names the key to change, and its place."""
    remedy = f"Stop the process that uses it, or change {where}." if is_in_use(error) else f"Change {where}."
    return CannotStart(f"Cannot bind {host}:{port}: {reason_of(error)}. {remedy}")
