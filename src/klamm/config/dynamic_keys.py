"""Broker configs that may change while a node runs, and the sources of their values.

Facts of DynamicBrokerConfig.AllDynamicConfigs and DynamicConfig.Broker (3.9).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from klamm.config.broker_keys import BROKER_KEYS, BrokerKey
from klamm.config.topic_config import TOPIC_KEYS

LEADER_THROTTLED_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_THROTTLED_RATE: Final = "follower.replication.throttled.rate"
LEADER_THROTTLED_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED_REPLICAS: Final = "follower.replication.throttled.replicas"
LOG_DIR_MOVES_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
THROTTLED_RATES: Final = (LEADER_THROTTLED_RATE, FOLLOWER_THROTTLED_RATE)
"""Keys of brokers: how many bytes per second throttled replicas may copy."""
REASSIGNMENT_RATES: Final = (*THROTTLED_RATES, LOG_DIR_MOVES_RATE)
"""Keys of brokers that limit a reassignment, between brokers and between log directories."""
THROTTLED_REPLICAS: Final = (LEADER_THROTTLED_REPLICAS, FOLLOWER_THROTTLED_REPLICAS)
"""Keys of topics: which replicas are throttled."""


def _split_names(text: str) -> frozenset[str]:
    """The names in a text, separated by spaces."""
    return frozenset(text.split())


_SECURITY: Final = _split_names(
    """
    ssl.keystore.type ssl.keystore.location ssl.keystore.password ssl.key.password ssl.truststore.type
    ssl.truststore.location ssl.truststore.password ssl.keystore.certificate.chain ssl.keystore.key
    ssl.truststore.certificates
    """
)
_LISTENER: Final = _split_names(
    """
    advertised.listeners listeners listener.security.protocol.map principal.builder.class ssl.protocol ssl.provider
    ssl.cipher.suites ssl.enabled.protocols ssl.keymanager.algorithm ssl.trustmanager.algorithm
    ssl.endpoint.identification.algorithm ssl.secure.random.implementation ssl.client.auth ssl.engine.factory.class
    sasl.mechanism.inter.broker.protocol sasl.jaas.config sasl.enabled.mechanisms sasl.kerberos.service.name
    sasl.kerberos.kinit.cmd sasl.kerberos.ticket.renew.window.factor sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.refresh.min.period.seconds sasl.login.refresh.buffer.seconds
    max.connections max.connection.creation.rate num.network.threads
    """
)
_OTHERS: Final = _split_names(
    """
    log.cleaner.threads log.cleaner.dedupe.buffer.size log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
    message.max.bytes log.cleaner.io.max.bytes.per.second log.cleaner.backoff.ms num.io.threads num.replica.fetchers
    num.recovery.threads.per.data.dir background.threads metric.reporters max.connections.per.ip
    max.connections.per.ip.overrides producer.id.expiration.ms transaction.partition.verification.enable
    remote.log.index.file.cache.total.size.bytes remote.fetch.max.wait.ms
    klamm.fetch.check.crcs klamm.log.scrub.bytes.per.second klamm.log.scrub.interval.ms
    remote.log.manager.copy.max.bytes.per.second remote.log.manager.fetch.max.bytes.per.second
    """
)
_OF_TOPICS: Final = frozenset(
    key.synonyms[0].name for key in TOPIC_KEYS.values() if key.synonyms and key.name != "message.format.version"
)
DYNAMIC_KEYS: Final = _SECURITY | _LISTENER | _OTHERS | _OF_TOPICS

_CLUSTER_LEVEL_LISTENER: Final = frozenset(("max.connections", "max.connection.creation.rate", "num.network.threads"))
PER_BROKER_KEYS: Final = (_SECURITY | _LISTENER) - _CLUSTER_LEVEL_LISTENER
"""Not allowed as the cluster's default, since they differ from broker to broker."""

THREAD_COUNTS: Final = frozenset(
    (
        "num.io.threads",
        "log.cleaner.threads",
        "num.replica.fetchers",
        "num.recovery.threads.per.data.dir",
        "background.threads",
    )
)
"""One change may at most halve or double them."""

QUOTA_KEYS: Final[Mapping[str, BrokerKey]] = {
    name: BrokerKey(name, "long", str(2**63 - 1), "0..")
    for name in (
        LEADER_THROTTLED_RATE,
        FOLLOWER_THROTTLED_RATE,
        LOG_DIR_MOVES_RATE,
    )
}
"""Configs that can only be set dynamically."""

_PASSWORDS: Final = tuple(
    sorted(name for name in DYNAMIC_KEYS if (key := BROKER_KEYS.get(name)) is not None and key.type == "password")
)
_OF_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.*)")
_SYNONYMS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)


def base_name(name: str) -> str:
    """The key without its `listener.name.…` prefix."""
    match = _OF_LISTENER.fullmatch(name)
    return match[1] if match else name


def is_for_one_listener(name: str) -> bool:
    """Whether the key has the prefix `listener.name.…`."""
    return _OF_LISTENER.fullmatch(name) is not None


def dynamic_key(name: str) -> BrokerKey | None:
    """The key by which the value is parsed; None for unknown keys, which are kept as text for plugins."""
    base = base_name(name)
    return QUOTA_KEYS.get(base) or BROKER_KEYS.get(base)


def is_dynamic(name: str) -> bool:
    """Whether the key can be changed at run time; true of unknown keys, whose values are not checked."""
    return name in DYNAMIC_KEYS or name not in BROKER_KEYS


def is_per_broker(name: str) -> bool:
    """Whether the key can be set only for one broker, not as a cluster default."""
    if is_for_one_listener(name):
        return base_name(name) not in _CLUSTER_LEVEL_LISTENER
    return name in PER_BROKER_KEYS


def is_password(name: str) -> bool:
    """Whether the key's value is a secret; a mechanism may stand before it, as in `plain.sasl.jaas.config`."""
    key = BROKER_KEYS.get(name)
    return name.endswith(_PASSWORDS) or (key is not None and key.type == "password")


def needs_listener(name: str) -> bool:
    """Whether the key needs a prefix `listener.name.…`, because listeners may differ in it, as with key stores."""
    return name in _SECURITY


def synonyms(name: str) -> tuple[str, ...]:
    """The key and its synonyms, in the order of their precedence."""
    if name == "log.flush.interval.ms":  # the scheduler's interval is its default, not the other way round
        return (name, "log.flush.scheduler.interval.ms")
    if is_for_one_listener(name):
        return (name, base_name(name))
    return next((family for family in _SYNONYMS if name in family), (name,))


def override(values: dict[str, str], changes: Mapping[str, str]) -> None:
    """Apply `changes` to `values`, in place; synonyms of a changed key are removed."""
    for name, value in changes.items():
        for synonym in _overridden_keys(name):
            values.pop(synonym, None)
        values[name] = value


def _overridden_keys(name: str) -> Iterable[str]:
    """The key and its synonyms, all of which a change of the key replaces."""
    return (name,) if is_for_one_listener(name) else synonyms(name)
