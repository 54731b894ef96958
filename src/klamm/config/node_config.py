"""Parsing of a node's `server.properties` into a frozen object. Source: KafkaConfig.scala (3.9).

An invalid value is refused with file, line, key, value and what is allowed. An unknown key is kept, as in Kafka, with a
warning that names the nearest known key.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from klamm.config.broker_keys import BROKER_KEYS, Value, parse_value
from klamm.config.config_types import InvalidConfig
from klamm.config.listeners import parse_listeners, parse_protocol_map, repeated_port
from klamm.config.properties import BadProperties, parse_properties
from klamm.model.brokers import Endpoint, SecurityProtocol
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The value of `replica.selector.class` that sends consumers to in-sync followers in their own rack (KIP-392)."""
_IBP: Final = re.compile(r"(2\.[0-8]|3\.[0-9])(-IV\d|\..*)?")
"""As in Kafka, what follows a third part is ignored: 2.8.1 means 2.8."""
_RETENTIONS: Final = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
"""The strongest first."""
_MIN_DEDUPE_BYTES: Final = 1 << 20
_PREFIXED: Final = ("listener.name.", "rsm.config.", "rlmm.config.")


class WrongConfig(KlammError):
    """An entry of the configuration is invalid. The message names its place and what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The configuration of a node; fields are named as the keys, with `_` instead of `.`."""

    source: str
    given: Mapping[str, str]
    """Every entry as written, for topic defaults and for DescribeConfigs."""
    warnings: tuple[str, ...]
    places: Mapping[str, str]
    """Where each entry is written, for messages: `server.properties, line 2`."""

    # put together from several keys
    log_directories: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]
    """Where to listen, in the file's order; the host is empty for every address."""
    advertised_endpoints: tuple[Endpoint, ...]
    inter_broker_listener: str
    control_plane_listener: str | None
    zookeeper_hosts: str
    zookeeper_chroot: str
    connections_per_address: Mapping[str, int]
    klamm_controller_only_brokers: frozenset[BrokerId]
    """They only act as controller: automatic placement gives them no replicas."""

    broker_id: int
    reserved_broker_max_id: int
    broker_rack: str | None
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int
    zookeeper_max_in_flight_requests: int
    klamm_crash_guard: bool
    klamm_controller_standby: str
    inter_broker_protocol_version: str
    socket_request_max_bytes: int
    socket_listen_backlog_size: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    max_connections: int
    max_connections_per_ip: int
    connections_max_idle_ms: int
    queued_max_request_bytes: int
    klamm_queued_max_response_bytes: int
    klamm_max_request_elements: int
    klamm_fetch_check_crcs: bool
    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    create_topic_policy_class_name: str | None
    alter_config_policy_class_name: str | None
    delete_topic_enable: bool
    klamm_delete_topic_dead_broker_wait_ms: int
    klamm_replace_restarted_replicas: bool
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    leader_imbalance_per_broker_percentage: int
    controlled_shutdown_enable: bool
    controlled_shutdown_max_retries: int
    controlled_shutdown_retry_backoff_ms: int
    controller_socket_timeout_ms: int
    delegation_token_expiry_check_interval_ms: int
    socket_connection_setup_timeout_ms: int
    request_timeout_ms: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    num_replica_fetchers: int
    num_recovery_threads_per_data_dir: int
    replica_lag_time_max_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_min_bytes: int
    replica_fetch_backoff_ms: int
    replica_socket_timeout_ms: int
    replica_selector_class: str | None
    replica_high_watermark_checkpoint_interval_ms: int
    replication_quota_window_num: int
    replication_quota_window_size_seconds: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_retention_check_interval_ms: int
    log_initial_task_delay_ms: int
    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_backoff_ms: int
    klamm_log_scrub_bytes_per_second: int
    klamm_log_scrub_interval_ms: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    klamm_journal_topic: str
    klamm_metrics_host: str
    klamm_metrics_port: int
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    offset_metadata_max_bytes: int
    offsets_commit_required_acks: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_load_buffer_size: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int

    def where(self, key: str) -> str:
        """Return the key with file and line, for a message that says what to change."""
        return f'"{key}" ({self.places.get(key, f"not set in {self.source}")})'


class _Entry(NamedTuple):
    line: int | None  # None for an override
    text: str


class _Reader:
    """The entries of one file, and the error for an invalid one."""

    def __init__(self, source: str, entries: Mapping[str, _Entry]) -> None:
        self.source = source
        self.entries = entries
        self.values: dict[str, Value] = {name: self._parse(name) for name in BROKER_KEYS}

    def error(self, name: str, reason: str) -> WrongConfig:
        """Return the error for this key: `FILE, line N: KEY=VALUE: REASON`."""
        entry = self.entries.get(name)
        if entry is None:
            return WrongConfig(f'{self.source}: "{name}" is not set: {reason}')
        return WrongConfig(f"{self.place(entry)}: {name}={entry.text}: {reason}")

    def place(self, entry: _Entry) -> str:
        """The file and line of an entry, for error messages."""
        return "--override" if entry.line is None else f"{self.source}, line {entry.line}"

    def require(self, holds: bool, name: str, reason: str) -> None:
        """Raise WrongConfig for this key, with the reason, where `holds` is false."""
        if not holds:
            raise self.error(name, reason)

    def number(self, name: str) -> int:
        """Return the parsed value of an integer config."""
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def text(self, name: str) -> str | None:
        """Return the parsed value of a text config; None where it is empty or not set."""
        value = self.values[name]
        return value if isinstance(value, str) and value else None

    def _parse(self, name: str) -> Value:
        """Return the parsed value of the config, or its default; an error names file and line."""
        key = BROKER_KEYS[name]
        entry = self.entries.get(name)
        if entry is None:
            return None if key.default is None else parse_value(key, key.default)
        try:
            return parse_value(key, entry.text)
        except InvalidConfig as error:
            raise WrongConfig(f"{self.place(entry)}: {error}") from None


def parse_node_config(content: bytes, source: str, overrides: Mapping[str, str] | None = None) -> NodeConfig:
    """The configuration in `content`, named `source` in messages, overridden by `overrides`.

    Raises WrongConfig.
    """
    try:
        properties = parse_properties(content)
    except BadProperties as error:
        raise WrongConfig(f"{source}, {error}") from None
    entries = {p.key: _Entry(p.line, p.value) for p in properties}
    entries.update({key: _Entry(None, value) for key, value in (overrides or {}).items()})
    if "node.id" in entries:
        entries.setdefault("broker.id", entries["node.id"])  # two names of one config
    reader = _Reader(source, entries)
    _check_rules(reader)
    composed = _composed_values(reader)
    simple = {f.name: reader.values[f.name.replace("_", ".")] for f in fields(NodeConfig) if f.name not in composed}
    return NodeConfig(**composed, **simple)  # type: ignore[arg-type]


def _composed_values(reader: _Reader) -> dict[str, Any]:
    """The config fields that are made from several keys, such as endpoints and directories."""
    endpoints, advertised = _parse_endpoints(reader)
    hosts, chroot = _parse_zookeeper_connect(reader)
    return {
        "source": reader.source,
        "places": {name: reader.place(entry) for name, entry in reader.entries.items()},
        "given": {name: entry.text for name, entry in reader.entries.items()},
        "warnings": _unknown_key_warnings(reader),
        "log_directories": _log_directories(reader),
        "endpoints": endpoints,
        "advertised_endpoints": advertised,
        "inter_broker_listener": _inter_broker_listener(reader, advertised),
        "control_plane_listener": _control_plane_listener(reader, advertised),
        "zookeeper_hosts": hosts,
        "zookeeper_chroot": chroot,
        "connections_per_address": _connections_per_address(reader),
        "klamm_controller_only_brokers": _controller_only_brokers(reader),
        "zookeeper_connection_timeout_ms": reader.values["zookeeper.connection.timeout.ms"]
        or reader.number("zookeeper.session.timeout.ms"),
    }


def _check_rules(reader: _Reader) -> None:
    """Raise WrongConfig where keys contradict each other or need a feature that klamm does not support."""
    require, number = reader.require, reader.number
    require(not reader.values["process.roles"], "process.roles", "klamm nodes run in ZooKeeper mode; remove it")
    require(
        not reader.values["zookeeper.metadata.migration.enable"],
        "zookeeper.metadata.migration.enable",
        "klamm does not migrate to KRaft; remove it",
    )
    require(
        not reader.values["zookeeper.ssl.client.enable"],
        "zookeeper.ssl.client.enable",
        "TLS to ZooKeeper is not offered yet; set it to false",
    )
    require(not reader.text("authorizer.class.name"), "authorizer.class.name", "ACLs are not offered yet; remove it")
    require(
        not reader.values["remote.log.storage.system.enable"],
        "remote.log.storage.system.enable",
        "tiered storage is not offered; set it to false",
    )
    require(
        reader.text("replica.selector.class") in (None, RACK_AWARE_SELECTOR),
        "replica.selector.class",
        f"klamm does not load Java classes; write {RACK_AWARE_SELECTOR}, or remove it",
    )
    require(
        _IBP.fullmatch(str(reader.values["inter.broker.protocol.version"])) is not None,
        "inter.broker.protocol.version",
        "klamm nodes speak 2.0 to 3.9 between brokers, for example 2.8 or 3.9-IV0",
    )
    broker_id = number("broker.id")
    is_same = "node.id" not in reader.entries or number("node.id") == broker_id
    require(is_same, "node.id", "write the same as broker.id, or remove it")
    if reader.values["broker.id.generation.enable"]:
        highest = number("reserved.broker.max.id")
        require(-1 <= broker_id <= highest, "broker.id", f"write -1 to {highest} (reserved.broker.max.id)")
    else:
        require(broker_id >= 0, "broker.id", "write 0 or more, as broker.id.generation.enable is false")
    wait = number("replica.fetch.wait.max.ms")
    require(
        wait <= number("replica.socket.timeout.ms"),
        "replica.fetch.wait.max.ms",
        "write at most replica.socket.timeout.ms",
    )
    require(
        wait <= number("replica.lag.time.max.ms"), "replica.fetch.wait.max.ms", "write at most replica.lag.time.max.ms"
    )
    _check_log_rules(reader)
    require(number("zookeeper.session.timeout.ms") > 0, "zookeeper.session.timeout.ms", "write at least 1")
    require(number("num.replica.fetchers") >= 1, "num.replica.fetchers", "write at least 1")
    if number("max.connections.per.ip") == 0:
        require(
            bool(reader.text("max.connections.per.ip.overrides")),
            "max.connections.per.ip",
            "0 needs max.connections.per.ip.overrides, or no client can connect",
        )


def _check_log_rules(reader: _Reader) -> None:
    """Raise WrongConfig for a retention that deletes every record, and for too little memory of the log cleaner."""
    retention = next((name for name in _RETENTIONS if reader.values[name] is not None), _RETENTIONS[-1])
    reader.require(reader.number(retention) != 0, retention, "write at least 1, or -1 for no limit")
    threads, buffer = reader.number("log.cleaner.threads"), reader.number("log.cleaner.dedupe.buffer.size")
    reader.require(threads > 0, "log.cleaner.threads", "write at least 1")
    reader.require(
        buffer // max(1, threads) > _MIN_DEDUPE_BYTES,
        "log.cleaner.dedupe.buffer.size",
        f"write more than {_MIN_DEDUPE_BYTES} for each of log.cleaner.threads",
    )


def _parse_endpoints(reader: _Reader) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
    """The listeners to bind and those to advertise."""
    protocols = _parse_text(reader, "listener.security.protocol.map", parse_protocol_map)
    listening = _parse_text(reader, "listeners", lambda text: parse_listeners(text, protocols))
    for endpoint in listening:
        reader.require(
            endpoint.security_protocol is SecurityProtocol.PLAINTEXT,
            "listeners",
            f"the listener {endpoint.listener} uses {endpoint.security_protocol.name}, which klamm does not offer yet; "
            "use PLAINTEXT",
        )
    port = repeated_port(listening)
    reader.require(port is None, "listeners", f"each listener needs a port of its own; {port} is listed twice")
    if reader.text("advertised.listeners") is None:
        advertised, key = listening, "listeners"
    else:
        key = "advertised.listeners"
        advertised = _parse_text(reader, key, lambda text: parse_listeners(text, protocols))
    names = [e.listener for e in listening]
    for endpoint in advertised:
        reader.require(
            endpoint.listener in names, key, f"{endpoint.listener} is not among the listeners {', '.join(names)}"
        )
        reader.require(
            endpoint.host != "0.0.0.0",
            key,
            "no client can connect to 0.0.0.0: set advertised.listeners to an address that clients reach",
        )
    return listening, advertised


def _inter_broker_listener(reader: _Reader, advertised: tuple[Endpoint, ...]) -> str:
    """The name of the listener for requests between brokers. Raises WrongConfig where it is ambiguous or missing."""
    names = [e.listener for e in advertised]
    named = reader.text("inter.broker.listener.name")
    if named is not None:
        reader.require(
            "security.inter.broker.protocol" not in reader.entries,
            "inter.broker.listener.name",
            "set either this or security.inter.broker.protocol, not both",
        )
        reader.require(named.upper() in names, "inter.broker.listener.name", f"write one of {', '.join(names)}")
        return named.upper()
    protocol = SecurityProtocol[reader.text("security.inter.broker.protocol") or "PLAINTEXT"]
    found = next((e.listener for e in advertised if e.security_protocol is protocol), None)
    if found is None:
        raise reader.error(
            "inter.broker.listener.name", f"no listener uses {protocol.name}; write one of {', '.join(names)}"
        )
    return found


def _controller_only_brokers(reader: _Reader) -> frozenset[BrokerId]:
    """Return the ids in `klamm.controller.only.brokers`."""
    key = "klamm.controller.only.brokers"
    names = reader.values[key]
    assert isinstance(names, list)
    for name in names:
        reader.require(name.isascii() and name.isdigit(), key, f"{name!r} is no broker.id; write for example 100,101")
    return frozenset(BrokerId(int(name)) for name in names)


def _control_plane_listener(reader: _Reader, advertised: tuple[Endpoint, ...]) -> str | None:
    """Return the name of the control plane listener in capitals; None where none is configured.

    It must be an advertised listener other than the inter-broker one.
    """
    key = "control.plane.listener.name"
    named = reader.text(key)
    if named is None:
        return None
    names = [e.listener for e in advertised]
    reader.require(named.upper() in names, key, f"write one of {', '.join(names)}")
    reader.require(
        named.upper() != _inter_broker_listener(reader, advertised),
        key,
        "the value must differ from the inter-broker listener",
    )
    return named.upper()


def _parse_zookeeper_connect(reader: _Reader) -> tuple[str, str]:
    """The host list and the chroot of zookeeper.connect."""
    text = reader.text("zookeeper.connect")
    if text is None:
        raise reader.error("zookeeper.connect", "write host:port of the ensemble, for example localhost:2181")
    hosts, slash, chroot = text.partition("/")
    hosts = ",".join(host.strip() for host in hosts.split(",") if host.strip())
    reader.require(bool(hosts), "zookeeper.connect", "write host:port of the ensemble, for example localhost:2181")
    for host in hosts.split(","):
        name, colon, port = host.strip().rpartition(":")
        wrong = bool(colon) and not (name and port.isdigit())
        reader.require(not wrong, "zookeeper.connect", f"{host.strip()!r} is not host:port")
    chroot = slash + chroot.rstrip("/")
    return hosts, "" if chroot == "/" else chroot


def _log_directories(reader: _Reader) -> tuple[str, ...]:
    """Return the directories of log.dirs, or of log.dir. Raises WrongConfig for empty and repeated ones."""
    key = "log.dirs" if "log.dirs" in reader.entries else "log.dir"  # as in Kafka, an empty log.dirs is not left out
    directories = [d.strip() for d in (reader.text(key) or "").split(",") if d.strip()]
    reader.require(bool(directories), key, "write at least one directory, several with commas between them")
    reader.require(len(set(directories)) == len(directories), key, "a directory is listed twice")
    return tuple(directories)


def _connections_per_address(reader: _Reader) -> dict[str, int]:
    """Connection limits by client address, from max.connections.per.ip.overrides."""
    key = "max.connections.per.ip.overrides"
    found: dict[str, int] = {}
    for item in (reader.text(key) or "").split(","):
        if not item.strip():
            continue
        host, _, count = item.strip().rpartition(":")
        reader.require(bool(host) and count.isdigit(), key, f"{item.strip()!r} is not host:count")
        found[host] = int(count)
    return found


def _parse_text(reader: _Reader, name: str, parse: Any) -> Any:
    """Parse the text of the key with `parse`; a ValueError becomes a WrongConfig that names the key."""
    try:
        return parse(reader.text(name) or "")
    except ValueError as error:
        raise reader.error(name, str(error)) from None


def _unknown_key_warnings(reader: _Reader) -> tuple[str, ...]:
    """A warning for each key that Kafka 3.9 does not have, with the nearest known key."""
    found: list[str] = []
    for name, entry in reader.entries.items():
        if name in BROKER_KEYS or name.startswith(_PREFIXED):
            continue
        near = difflib.get_close_matches(name, BROKER_KEYS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        found.append(f"{reader.place(entry)}: {name} is not a key of Kafka 3.9 and has no effect{hint}")
    return tuple(found)
