"""One model server: its own, possibly stale, tree, its clients' connections and watches."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable

from klamm.runtime.network import Listener, Network
from klamm.sim.zookeeper.connection import ServerConnection
from klamm.sim.zookeeper.ensemble import Ensemble
from klamm.sim.zookeeper.tree import Transaction, Tree
from klamm.sim.zookeeper.watchers import Watchers
from klamm.zk.acl import OPEN_ACL


class Server:
    """A model server, on a simulated or a real network: `await server.listen(network, host, port)`."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.tree = Tree()
        self.watchers: Watchers[ServerConnection] = Watchers()
        self.connections: dict[ServerConnection, None] = {}
        self.lag_s: Callable[[], float] = lambda: 0.0
        """How long after the ensemble this server applies the next transaction."""
        self.follower_pause_s = 0.0
        """The pause before each bulk read of a client that watches a subtree; notices to it do not wait."""
        self.is_up = True
        self.is_cut_off = False
        self.accepts_clients = True
        self._behind: deque[Transaction] = deque()
        self._applied_at = 0.0
        self._timer_context = contextvars.copy_context()
        """Where our timers belong: a write may be decided within the step of a client that dies right after."""
        ensemble.join(self)

    async def listen(self, network: Network, host: str, port: int) -> Listener:
        """Listen for clients on this port."""
        listener = await network.listen(self.accept, host, port)
        await listener.start()
        return listener

    def accept(self) -> ServerConnection:
        """Create the protocol of a new client connection."""
        return ServerConnection(self)

    @property
    def reaches_leader(self) -> bool:
        """Whether writes and new sessions can be served now; if not, they wait."""
        return self.ensemble.has_quorum and not self.is_cut_off

    @property
    def leads(self) -> bool:
        """Whether this server is the leader."""
        return self.ensemble.leader is self

    @property
    def mode(self) -> str:
        """The mode as the four-letter word `srvr` reports it: standalone, leader or follower."""
        if len(self.ensemble.servers) == 1:
            return "standalone"
        return "leader" if self.leads else "follower"

    def connection_of(self, session: int) -> ServerConnection | None:
        """The connection that serves this session here, or None."""
        return next((c for c in self.connections if c.session_id == session), None)

    # ---- what befalls it

    def stop(self) -> None:
        """Stop the server's process; its tree is kept, as on disk."""
        self.is_up = False
        self.on_leader_lost()
        self.ensemble.update_quorum()

    def start(self) -> None:
        """Start the server's process again."""
        self.is_up = True
        self.ensemble.update_quorum()

    def cut_off(self) -> None:
        """Cut the links to the other servers: this one serves stale reads and drops its clients after a while."""
        self.is_cut_off = True
        self.ensemble.on_server_partitioned()

    def reconnect(self) -> None:
        """Restore the links to the other servers."""
        self.is_cut_off = False
        self.ensemble.update_quorum()

    def disconnect_clients(self) -> None:
        """Close the connections of all clients."""
        for connection in list(self.connections):
            connection.drop()

    # ---- for the ensemble

    def receive_transaction(self, transaction: Transaction) -> None:
        """Apply a committed transaction now, or later if the server lags or is cut off."""
        if not self.accepts_clients or self.is_cut_off:
            self._behind.append(transaction)
            return
        lag_s = self.lag_s()
        if not lag_s and not self._behind:
            self._apply(transaction)
            return
        loop = asyncio.get_running_loop()
        self._behind.append(transaction)
        self._applied_at = max(self._applied_at, loop.time() + lag_s)
        loop.call_at(self._applied_at, self._catch_up, context=self._timer_context)

    def on_leader_reachable(self) -> None:
        """Apply missed transactions and serve the waiting requests, because a leader is reachable."""
        if not self.accepts_clients or self._behind:
            self.accepts_clients = True
            while self._behind:
                self._apply(self._behind.popleft())
        for connection in list(self.connections):
            connection.advance()

    def on_leader_lost(self) -> None:
        """Disconnect all clients, because no leader is reachable."""
        self.accepts_clients = False
        self.disconnect_clients()

    def _catch_up(self) -> None:
        """Apply the next delayed transaction."""
        if self._behind and self.accepts_clients and not self.is_cut_off:
            self._apply(self._behind.popleft())
            for connection in list(self.connections):
                connection.advance()

    def _apply(self, transaction: Transaction) -> None:
        """Apply a transaction to the tree and send the watch events."""
        self.tree.zxid = transaction.zxid
        for change in transaction.changes:
            fired = self.tree.triggered_watches(change)
            self.tree.apply(change, transaction.zxid, transaction.time_ms)
            for event, acl in fired:
                for connection in self.watchers.fire(event):
                    if acl is OPEN_ACL or connection.may_read(acl):
                        connection.notify(event, transaction.zxid)
