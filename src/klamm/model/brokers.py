"""A broker as it registers itself. Source: BrokerEndPoint.scala, EndPoint.scala, Broker.scala."""

from dataclasses import dataclass
from enum import IntEnum

from klamm.model.ids import BrokerId


class SecurityProtocol(IntEnum):
    """Ids as UpdateMetadata carries them."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


@dataclass(frozen=True, slots=True)
class Endpoint:
    listener: str
    security_protocol: SecurityProtocol
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Broker:
    """A registration as read from `/brokers/ids/N`; `epoch` is the znode's czxid (KIP-380)."""

    id: BrokerId
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1
    writes_isrs: bool = False
    """As leader it writes its ISRs to ZooKeeper: its protocol is older than AlterPartition."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of this listener; None if the broker does not have it."""
        return next((e for e in self.endpoints if e.listener == listener), None)
