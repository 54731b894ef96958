"""Values in Avro: with one schema, or with Confluent's wire format and the schemas of a registry."""

import base64
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from klamm.model.errors import KlammError
from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.http import http_get, split_url
from klamm.spark.avro_logical import adapter_of, without_uuids
from klamm.spark.option_parsers import HiddenValue
from klamm.spark.secrets import resolve_secret
from klamm.spark.values import Decoded

AUTH_OPTION: Final = "schemaRegistryAuth"
MAGIC: Final = b"\0"
PREFIX_BYTES: Final = 5
"""Of Confluent's wire format: the magic byte 0 and the schema's id in four bytes."""
_TRIES: Final = 4
_FIRST_BACKOFF_S: Final = 0.25
_TIMEOUT_S: Final = 10.0
_NOT_FOUND: Final = 404
_OK: Final = 200
MISSING_S: Final = 5.0
"""How long a schema that the registry does not have counts as missing: it may get the schema at any time."""
_MAX_MISSING: Final = 1_000
_BAD_VALUE: Final = (
    ArithmeticError, LookupError, EOFError, TypeError, ValueError, MemoryError, AttributeError, SystemError,
)  # fmt: skip
"""What fastavro raises for bytes that are not of the schema; SystemError is that of a read of a negative length."""


class RegistryUnusable(KlammError):
    """The schema registry does not answer, or refuses; no record is at fault."""


class Registry(NamedTuple):
    """A schema registry; `auth` says where USER:PASSWORD is, None where it asks for none."""

    url: str
    auth: str | None


class _StoredSchema(msgspec.Struct, rename={"kind": "schemaType"}):
    """What a registry answers for the id of a schema."""

    schema: str
    kind: str = "AVRO"


class NoSuchSchema(Exception):
    """The registry does not have the schema that a record names, or it is not Avro."""


_missing: dict[tuple[Registry, int], tuple[float, str]] = {}
"""Until when each schema counts as missing, and why."""


def parse_avro_schema(text: str) -> Any:
    """Return the parsed schema of records. Raises ValueError for what is no Avro schema of a record."""
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    try:
        schema = parse_schema(without_uuids(msgspec.json.decode(text)))
    except (msgspec.DecodeError, SchemaParseException, UnknownType, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the text is not an Avro schema in JSON ({error}); correct it") from None
    if not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        raise ValueError("the Avro schema is not a record; give a record, since values of other types have no columns")
    return schema


def parse_registry(text: str) -> str:
    """Return the URL of a registry. Raises ValueError, without the text where it has a password."""
    parts = split_url(text.strip())
    if parts.username or parts.password:
        raise HiddenValue(f"the URL has a user or password in it; remove them, and set {AUTH_OPTION}")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"{text!r} is not a URL; give for example http://schemas:8081")
    return text.strip().rstrip("/")


def decode_avro(schema_text: str, kind: pa.DataType, registry: Registry | None) -> Callable[[pa.BinaryArray], Decoded]:
    """A decoder of Avro records to structs of this type.

    With a registry each value names the schema with which it was written, and is resolved to `schema_text`.
    """
    from fastavro import schemaless_reader
    from fastavro.read import SchemaResolutionError
    from fastavro.schema import SchemaParseException

    reader = _parsed(schema_text)
    adapt = None if registry is None else adapter_of(reader, {})

    def read(value: bytes) -> Any:
        """Decode one value.

        Raises one of _BAD_VALUE, NoSuchSchema, SchemaParseException, SchemaResolutionError; RegistryUnusable.
        """
        writer, start = reader, 0
        if registry is not None:
            if len(value) < PREFIX_BYTES or value[:1] != MAGIC:
                raise ValueError("the value does not begin with the byte 0 and the id of a schema")
            writer, start = _schema_of(registry, int.from_bytes(value[1:PREFIX_BYTES], "big")), PREFIX_BYTES
        stream = pa.BufferReader(memoryview(value)[start:])
        found = schemaless_reader(stream, writer, reader)
        if stream.tell() != len(value) - start:
            raise ValueError(f"{len(value) - start - stream.tell()} bytes of the value are left after the record")
        return found if adapt is None else adapt(found)

    def decode(values: pa.BinaryArray) -> Decoded:
        """Decode all values; those that cannot be decoded become null with a reason."""
        found: list[Any] = []
        reasons: dict[int, str] = {}
        for i, value in enumerate(values.to_pylist()):
            try:
                found.append(None if value is None else read(value))
            except (*_BAD_VALUE, NoSuchSchema, SchemaParseException, SchemaResolutionError) as error:
                found.append(None)
                reasons[i] = _reason(error)
        return _as_arrow(found, kind, reasons)

    return decode


def _as_arrow(found: list[Any], kind: pa.DataType, reasons: dict[int, str]) -> Decoded:
    """The decoded values as an Arrow array; those out of the range of their type become null with a reason."""
    try:
        return Decoded(pa.array(found, kind), reasons)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError):
        for i, value in enumerate(found):
            try:
                pa.array([value], kind)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError) as error:
                found[i] = None
                reasons[i] = _reason(error)
        return Decoded(pa.array(found, kind), reasons)


def _reason(error: Exception) -> str:
    """Why a value could not be decoded."""
    if isinstance(error, NoSuchSchema):
        return str(error)
    if isinstance(error, SystemError):
        return "the value is not Avro of the schema: a length in it is negative"
    text = str(error) or ("it ends too early" if isinstance(error, EOFError) else type(error).__name__)
    return f"the value is not Avro of the schema: {text}"


@lru_cache(16)
def _parsed(text: str) -> Any:
    """Return the parsed Avro schema; it is cached, since one worker process runs many tasks."""
    return parse_avro_schema(text)


def _schema_of(registry: Registry, schema_id: int) -> Any:
    """Return the schema of this id. One that is missing is asked for again only after MISSING_S.

    Raises NoSuchSchema, SchemaParseException, RegistryUnusable.
    """
    until_s, reason = _missing.get((registry, schema_id), (0.0, ""))
    if reason and RealBlockingWorld().now_s() < until_s:
        raise NoSuchSchema(reason)
    try:
        return _writer_schema(registry, schema_id)
    except NoSuchSchema as error:
        if len(_missing) >= _MAX_MISSING:
            _missing.clear()
        _missing[registry, schema_id] = RealBlockingWorld().now_s() + MISSING_S, str(error)
        raise


@lru_cache(1_000)
def _writer_schema(registry: Registry, schema_id: int) -> Any:
    """Return the schema of this id. Raises NoSuchSchema, SchemaParseException, RegistryUnusable."""
    from fastavro.schema import parse_schema

    path = f"/schemas/ids/{schema_id}"
    try:
        stored = msgspec.json.decode(_ask(registry, path), type=_StoredSchema)
    except msgspec.DecodeError as error:  # of a proxy, for example
        raise RegistryUnusable(
            f"Cannot read {registry.url}{path}: its answer has no schema. Correct schemaRegistry."
        ) from error
    if stored.kind != "AVRO":
        raise NoSuchSchema(f"the schema {schema_id} of the registry is {stored.kind}, not Avro")
    return parse_schema(without_uuids(msgspec.json.decode(stored.schema)))


def _ask(registry: Registry, path: str) -> bytes:
    """Return the registry's answer. Raises NoSuchSchema, RegistryUnusable."""
    headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
    if registry.auth is not None:
        secret = resolve_secret(AUTH_OPTION, registry.auth)
        headers["Authorization"] = f"Basic {base64.b64encode(secret.encode()).decode()}"
    problem = ""
    for attempt in range(_TRIES):
        if attempt:
            RealBlockingWorld().sleep(_FIRST_BACKOFF_S * 2**attempt)
        try:
            answer = http_get(registry.url + path, headers, _TIMEOUT_S)
        except OSError as error:
            problem = str(getattr(error, "reason", None) or error)
            continue
        if answer.status == _OK:
            return answer.body
        if answer.status == _NOT_FOUND:
            raise NoSuchSchema(f"the registry has no schema at {path}")
        problem = f"it answers with status {answer.status}"
        if answer.status in (401, 403):
            problem += f"; set {AUTH_OPTION} to a user that may read schemas"
            break
    raise RegistryUnusable(
        f"Cannot read {registry.url}{path}: {problem}. Correct schemaRegistry, or start the registry."
    )
