"""The settings of the controller, and the request versions for an inter.broker.protocol.version.

Source: KafkaConfig.scala, ControllerChannelManager.scala.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klamm.model.ids import BrokerId
from klamm.zk.registrations import NO_FEATURES, FeatureRange

Ibp = tuple[int, int, int]
"""inter.broker.protocol.version as (major, minor, IV number): `2.8-IV1` is (2, 8, 1); `0.10.2-IV0` is (0, 10, 20)."""


FIRST_WITH_FEATURES: Final[Ibp] = (2, 7, 0)
"""From here on the controller writes `/feature`."""
FIRST_WITH_ALTER_PARTITION: Final[Ibp] = (2, 7, 2)
"""Before this version, leaders write the states of their partitions themselves."""
FIRST_WITH_TOPIC_IDS: Final[Ibp] = (2, 8, 0)
"""From here on topics have ids."""
FIRST_LEADER_AND_ISR_WITH_TOPIC_IDS: Final = 5
"""A version of the LeaderAndIsr request."""
FIRST_WITH_PRODUCER_IDS: Final[Ibp] = (3, 0, 0)
"""Before this version, brokers take blocks of producer ids from ZooKeeper themselves."""


def parse_ibp(text: str) -> Ibp:
    """Read `3.9`, `3.9-IV0`, `0.10.2-IV0`; a version without an IV part means its last one, and `3.9.1` means `3.9`.

    Raises ValueError.
    """
    release = ".".join(text.split(".")[:2])
    numbers, _, iv = (text if text.startswith("0.") or "-" in release else release).partition("-IV")
    parts = [int(part) for part in numbers.split(".")]
    if len(parts) not in (2, 3) or (iv and not iv.isdigit()):
        raise ValueError(f"inter.broker.protocol.version={text!r} is not valid; write for example 3.9-IV0")
    if parts[0] == 0:
        patch = parts[2] if len(parts) == 3 else 0
        return (0, parts[1], patch * 10 + (int(iv) if iv else 9))
    return (parts[0], parts[1], int(iv) if iv else 9)


class RequestVersions(NamedTuple):
    """The versions in which control requests are sent."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int


_REQUEST_VERSIONS: Final[tuple[tuple[Ibp, RequestVersions], ...]] = (
    ((3, 4, 0), RequestVersions(7, 8, 4)),
    ((3, 2, 0), RequestVersions(6, 7, 3)),
    ((2, 8, 1), RequestVersions(5, 7, 3)),
    ((2, 6, 0), RequestVersions(4, 6, 3)),
    ((2, 4, 1), RequestVersions(4, 6, 2)),
    ((2, 4, 0), RequestVersions(3, 5, 1)),
    ((2, 2, 0), RequestVersions(2, 5, 1)),
    ((1, 0, 0), RequestVersions(1, 4, 0)),
    ((0, 10, 20), RequestVersions(0, 3, 0)),
    ((0, 10, 1), RequestVersions(0, 2, 0)),
    ((0, 9, 0), RequestVersions(0, 1, 0)),
    ((0, 0, 0), RequestVersions(0, 0, 0)),
)
"""By the oldest protocol version that uses them, newest first."""


def request_versions(ibp: Ibp) -> RequestVersions:
    """The version of each control request; it depends on the protocol version alone, not on the broker."""
    return next(versions for since, versions in _REQUEST_VERSIONS if ibp >= since)


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """What the controller uses of a node's configuration."""

    broker_id: BrokerId
    inter_broker_listener: str = "PLAINTEXT"
    control_plane_listener: str | None = None
    ibp: Ibp = (3, 9, 0)
    unclean_leader_election: bool = False
    """`unclean.leader.election.enable` of the brokers, for topics without a config of their own."""
    socket_timeout_ms: int = 30_000
    """`controller.socket.timeout.ms`: how long connecting to a broker may take."""
    request_timeout_ms: int = 30_000
    resend_pause_ms: int = 100
    """The pause before a control request is sent again."""
    feature_timeout_s: float = 18.0
    """How long a new controller waits until its own node knows the finalized features: the ZooKeeper time-out."""
    supported_features: Mapping[str, FeatureRange] = field(default_factory=lambda: NO_FEATURES)
    """Features that this node supports, with their ranges; no release in ZooKeeper mode has any."""
    token_check_interval_ms: int | None = None
    """`delegation.token.expiry.check.interval.ms`; None where no secret key enables tokens."""
    auto_leader_rebalance: bool = True
    """`auto.leader.rebalance.enable`."""
    leader_imbalance_check_s: int = 300
    leader_imbalance_percentage: int = 10
    delete_topic_enable: bool = True
    dead_broker_timeout_ms: int = 60_000
    """`klamm.delete.topic.dead.broker.wait.ms`: how long a topic's deletion waits for a broker that is gone."""
    replaces_restarted_replicas: bool = True
    """`klamm.replace.restarted.replicas`: whether a failover removes brokers from ISRs that restarted before it."""

    @property
    def control_listener(self) -> str:
        """The listener to which control requests go."""
        return self.control_plane_listener or self.inter_broker_listener

    @property
    def versions(self) -> RequestVersions:
        """The versions of the control requests."""
        return request_versions(self.ibp)

    @property
    def uses_topic_ids(self) -> bool:
        """Whether new topics get an id."""
        return self.ibp >= FIRST_WITH_TOPIC_IDS

    @property
    def requests_carry_topic_ids(self) -> bool:
        """Whether LeaderAndIsr has topic ids, so that a broker can tell a topic from an earlier one of its name."""
        return self.versions.leader_and_isr >= FIRST_LEADER_AND_ISR_WITH_TOPIC_IDS

    @property
    def writes_recovery_state(self) -> bool:
        """Whether state znodes have a leader recovery state."""
        return self.ibp >= (3, 2, 0)

    @property
    def controller_owns_partition_state(self) -> bool:
        """Whether leaders ask the controller for ISR changes (2.7-IV2); before, they wrote their ISRs themselves."""
        return self.ibp >= FIRST_WITH_ALTER_PARTITION

    @property
    def versions_features(self) -> bool:
        """Whether the controller writes `/feature`: so from inter.broker.protocol.version 2.7 on."""
        return self.ibp >= FIRST_WITH_FEATURES

    @property
    def features_payload_version(self) -> int:
        """The format version of the JSON that the controller writes to `/feature`."""
        return 2 if self.ibp >= (3, 3, 0) else 1
