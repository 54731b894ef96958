"""Alters configs of topics and brokers: checks, then writes. Source: ConfigAdminManager, ZkAdminManager (3.9)."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import structlog

from klamm.broker.config_policy import KEY as ALTER_KEY
from klamm.broker.config_policy import AlterationAsked, AlterConfigPolicy
from klamm.broker.metadata_cache import MetadataCache
from klamm.broker.topic_creation import zookeeper_error_code
from klamm.broker.topic_names import name_error
from klamm.broker.topic_policy import PolicyViolation, policy_failure
from klamm.config.broker_keys import BrokerKey
from klamm.config.config_types import ConfigType, InvalidConfig
from klamm.config.dynamic_config import DynamicConfig
from klamm.config.dynamic_keys import dynamic_key
from klamm.config.topic_config import TOPIC_KEYS, TopicConfig
from klamm.model.errors import ErrorCode, KlammError
from klamm.runtime.time_slices import CountedSlices, Slices
from klamm.zk.configs import DEFAULT_ENTITY, ConfigChanged, ConfigStore, NoZooKeeperController
from klamm.zk.errors import ZkError
from klamm.zk.znodes import MalformedZnode

_ATTEMPTS: Final = 5
log = structlog.get_logger("config")


class ResourceType(IntEnum):
    """Types of config resources, with their numbers in requests."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16


class Operation(IntEnum):
    """Operations of IncrementalAlterConfigs, with their numbers in requests."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One entry of a request; `operation` is the number that was sent, valid or not."""

    name: str
    value: str | None
    operation: int = Operation.SET


class Outcome(NamedTuple):
    """The result for one resource."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class Refusal(Exception):
    """One resource cannot be altered. The client gets the text."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.outcome = Outcome(error, message)


class ConfigAdmin:
    """Serves AlterConfigs and IncrementalAlterConfigs for one resource at a time."""

    def __init__(
        self,
        broker_id: int,
        dynamic: DynamicConfig,
        cache: MetadataCache,
        configs: Callable[[], ConfigStore],
        policy: AlterConfigPolicy | None = None,
        slices: Slices | None = None,
    ) -> None:
        """`configs()` is that of the newest ZooKeeper session; raises KlammError where there is none."""
        self._broker_id = broker_id
        self._dynamic = dynamic
        self._cache = cache
        self._configs = configs
        self._policy = policy
        self._slices = slices or CountedSlices()

    async def replace(self, kind: int, name: str, changes: Sequence[Change], *, validate_only: bool) -> Outcome:
        """Carry out AlterConfigs for one resource: the given configs replace all that are stored."""

        async def build(_stored: Mapping[str, str]) -> dict[str, str]:
            """Return the new configs of the resource: those given with a value, whatever was stored before."""
            return await self._slices.dict_of((c.name, c.value or "") for c in changes if c.value is not None)

        return await self._outcome_of(lambda: self._alter(kind, name, changes, build, validate_only))

    async def increment(self, kind: int, name: str, changes: Sequence[Change], *, validate_only: bool) -> Outcome:
        """Carry out IncrementalAlterConfigs for one resource: configs that are not named keep their values."""

        async def build(stored: Mapping[str, str]) -> dict[str, str]:
            """Return the stored configs of the resource with the changes applied."""
            found = dict(stored)
            await self._slices.run(apply_changes(found, changes, kind))
            return found

        return await self._outcome_of(lambda: self._alter(kind, name, changes, build, validate_only))

    async def _outcome_of(self, alter: Callable[[], Awaitable[None]]) -> Outcome:
        """Run an alteration and return its outcome: each expected error as a Kafka error code."""
        try:
            await alter()
        except Refusal as refusal:
            return refusal.outcome
        except NoZooKeeperController as error:
            return Outcome(ErrorCode.STALE_CONTROLLER_EPOCH, str(error))
        except ConfigChanged as error:
            return Outcome(ErrorCode.REQUEST_TIMED_OUT, str(error))
        except ZkError as error:
            return Outcome(
                zookeeper_error_code(error), f"The configs were not written to ZooKeeper: {error}. Try again."
            )
        except MalformedZnode as error:
            return Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        return Outcome()

    async def _alter(
        self,
        kind: int,
        name: str,
        changes: Sequence[Change],
        build: Callable[[Mapping[str, str]], Awaitable[dict[str, str]]],
        validate_only: bool,
    ) -> None:
        """Read, check and write the configs; start again where another client wrote in between."""
        await self._slices.run(check_request(changes))
        entity_type, entity = self._resolve_entity(kind, name)
        for attempt in range(_ATTEMPTS):
            configs = self._configs()
            stored = await configs.read(entity_type, entity)
            usable = stored.config
            if kind == ResourceType.BROKER:
                usable = self._dynamic.usable(stored.config, per_broker=entity != DEFAULT_ENTITY)
            wanted = await build(usable)
            self._check_configs(kind, name, entity, wanted)
            self._check_policy(kind, name, changes)
            if validate_only:
                return
            try:
                await configs.write(entity_type, entity, wanted, stored.version)
            except ConfigChanged:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            log.info("configs altered", entity=f"{entity_type}/{entity}", keys=",".join(c.name for c in changes))
            return

    def _check_policy(self, kind: int, name: str, changes: Sequence[Change]) -> None:
        """Raise Refusal where the configured alter.config.policy.class.name rejects the changes."""
        if self._policy is None:
            return
        named = {c.name: None if c.operation == Operation.DELETE else c.value for c in changes}
        try:
            self._policy.validate(AlterationAsked(kind, name, named))
        except PolicyViolation as violation:
            raise Refusal(ErrorCode.POLICY_VIOLATION, str(violation)) from None
        except Exception as mistake:
            raise Refusal(*policy_failure(ALTER_KEY, name, mistake)) from mistake

    def _resolve_entity(self, kind: int, name: str) -> tuple[str, str]:
        """The ZooKeeper entity (type, name) of a resource.

        Raises Refusal for resources whose configs cannot be altered.
        """
        if kind == ResourceType.TOPIC:
            return self._topic_entity(name)
        if kind == ResourceType.BROKER:
            return "brokers", self._broker_entity(name)
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")

    def _topic_entity(self, name: str) -> tuple[str, str]:
        """The topic as (entity type, name). Raises Refusal for an unknown or illegal topic."""
        if not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if not self._cache.has_topic(name):
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        if reason := name_error(name):
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        return "topics", name

    def _broker_entity(self, name: str) -> str:
        """The broker id as text, or the default entity without a name. Raises Refusal for another broker."""
        if not name:
            return DEFAULT_ENTITY
        check_broker_id(name, self._broker_id, f"Unexpected broker id, expected {self._broker_id}, but received {name}")
        return str(self._broker_id)

    def _check_configs(self, kind: int, name: str, entity: str, wanted: Mapping[str, str]) -> None:
        """Raise Refusal where the resulting configs would be invalid."""
        if kind == ResourceType.BROKER:
            try:
                self._dynamic.check(wanted, per_broker=entity != DEFAULT_ENTITY)
            except KlammError as error:  # a wrong value, an unfit key, or keys that contradict each other
                raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from error
            return
        unknown = next((key for key in wanted if key not in TOPIC_KEYS), None)
        if unknown is not None:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {unknown}")
        try:
            TopicConfig.parse(wanted, self._dynamic.current.given)
        except InvalidConfig as error:
            text = f"Invalid config value for resource ConfigResource(type=TOPIC, name='{name}'): {error}"
            raise Refusal(ErrorCode.INVALID_CONFIG, text) from error


def check_broker_id(name: str, own_id: int, mismatch: str) -> None:
    """Raise Refusal where the resource's name is not a number, or not `own_id`; the latter with the text `mismatch`."""
    try:
        number = int(name)
    except ValueError:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if number != own_id:
        raise Refusal(ErrorCode.INVALID_REQUEST, mismatch)


_MAX_NAMED: Final = 100
"""Configs that the text of an error names."""
_OPERATIONS: Final = frozenset(Operation)


def check_request(changes: Sequence[Change]) -> Iterator[None]:
    """Raise Refusal for a repeated key, a null value or an unknown operation; pauses after each change."""
    names: set[str] = set()
    nulls: list[str] = []
    strange: list[int] = []
    for change in changes:
        names.add(change.name)
        if change.value is None and change.operation != Operation.DELETE:
            nulls.append(change.name)
        if change.operation not in _OPERATIONS:
            strange.append(change.operation)
        yield
    if len(names) < len(changes):
        raise Refusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls:
        more = f" and {len(nulls) - _MAX_NAMED} more" if len(nulls) > _MAX_NAMED else ""
        text = f"Null value not supported for : {', '.join(nulls[:_MAX_NAMED])}{more}"
        raise Refusal(ErrorCode.INVALID_REQUEST, text)
    if strange:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown operations type {strange[0]}")


def apply_changes(found: dict[str, str], changes: Iterable[Change], kind: int) -> Iterator[None]:
    """Apply these changes to the config; pauses before each.

    Raises Refusal where APPEND or SUBTRACT names a key that is not a list.
    """
    for change in changes:
        yield
        if change.operation == Operation.DELETE:
            found.pop(change.name, None)
            continue
        assert change.value is not None, "check_request refuses null values"
        if change.operation == Operation.SET:
            found[change.name] = change.value
            continue
        verb = "append" if change.operation == Operation.APPEND else "subtract"
        default = _list_default(change.name, kind, verb)
        text = found.get(change.name, default)
        found[change.name] = _alter_list(text, change.value, verb)


def _alter_list(text: str, value: str, verb: str) -> str:
    """The list config `text` after APPEND or SUBTRACT of the entries of `value`."""
    items = [item for item in text.split(",") if item]
    named = value.split(",")
    if verb == "append":
        present = frozenset(items)
        return ",".join(items + [item for item in named if item not in present])
    removed = frozenset(named)
    return ",".join(item for item in items if item not in removed)


def _list_default(name: str, kind: int, verb: str) -> str:
    """The default of a list config. Raises Refusal where the config is not a list."""
    if kind == ResourceType.TOPIC:
        topic_key = TOPIC_KEYS.get(name)
        is_list, default = topic_key is not None and topic_key.type is ConfigType.LIST, topic_key and topic_key.default
    else:
        key: BrokerKey | None = dynamic_key(name)
        is_list, default = key is not None and key.type == "list", key and key.default
    if not is_list:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"Config value {verb} is not allowed for config key: {name}")
    return default or ""
