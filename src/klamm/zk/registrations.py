"""The registration of a broker, the znode `/brokers/ids/N`. Source: BrokerIdZNode (ZkData.scala), EndPoint.scala."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.model.ids import BrokerId
from klamm.zk.znodes import Int16, MalformedZnode, broker_path, decode_json, encode_json

VERSION_WITH_FEATURES: Final = 5
"""The payload version from inter.broker.protocol.version 2.7-IV0 on."""
VERSION_WITH_LISTENERS: Final = 4
"""The payload version from inter.broker.protocol.version 0.10.0-IV1 on."""
OLDEST_WRITTEN: Final = 2
"""The oldest payload version that klamm writes."""
MAX_PORT: Final = 65_535

_ENDPOINT: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]{1,10})")


class FeatureRange(NamedTuple):
    """The feature levels that a broker supports."""

    min_version: int
    max_version: int


NO_FEATURES: Final[Mapping[str, FeatureRange]] = MappingProxyType({})


class Registration(NamedTuple):
    """A broker's registration; `broker.epoch` is the znode's czxid."""

    broker: Broker
    features: Mapping[str, FeatureRange] = NO_FEATURES


class _Feature(msgspec.Struct):
    min_version: Int16
    max_version: Int16


class _Registration(msgspec.Struct):
    version: int
    jmx_port: int
    host: str | None = None
    port: int = -1
    endpoints: list[str] | None = None
    rack: str | None = None
    listener_security_protocol_map: dict[str, str] | None = None
    features: dict[str, _Feature] | None = None


def encode_registration(
    broker: Broker,
    now_ms: int,
    jmx_port: int = -1,
    version: int = VERSION_WITH_FEATURES,
    features: Mapping[str, FeatureRange] = NO_FEATURES,
) -> bytes:
    """Return the JSON content of the znode `/brokers/ids/<id>`, in this version of the format."""
    plaintext = next((e for e in broker.endpoints if e.security_protocol is SecurityProtocol.PLAINTEXT), None)
    content: dict[str, Any] = {}
    if version >= VERSION_WITH_FEATURES:
        content["features"] = {name: found._asdict() for name, found in features.items()}
    if version >= VERSION_WITH_LISTENERS:
        content["listener_security_protocol_map"] = {e.listener: e.security_protocol.name for e in broker.endpoints}
    content["endpoints"] = [str(e) for e in broker.endpoints]
    if broker.rack is not None and version > OLDEST_WRITTEN:
        content["rack"] = broker.rack
    content["jmx_port"] = jmx_port
    content["port"] = plaintext.port if plaintext else -1
    content["host"] = plaintext.host if plaintext else None
    content["version"] = version
    content["timestamp"] = str(now_ms)
    return encode_json(content)


def decode_registration(broker: BrokerId, payload: bytes | None, czxid: int) -> Registration:
    """Decode the payload of a broker's znode. Raises MalformedZnode."""
    path = broker_path(broker)
    read = decode_json(path, payload, _Registration)
    if read.version < 1:
        raise MalformedZnode(path, reason=f"the registration has version {read.version}, which klamm cannot read")
    endpoints = _endpoints(path, read)
    names = [e.listener for e in endpoints]
    if len(set(names)) < len(names):
        raise MalformedZnode(path, reason=f"the registration names a listener twice: {', '.join(names)}")
    features = {n: FeatureRange(f.min_version, f.max_version) for n, f in (read.features or {}).items()}
    writes_isrs = read.version < VERSION_WITH_FEATURES  # features came with 2.7, and AlterPartition, too
    return Registration(Broker(broker, tuple(endpoints), read.rack, czxid, writes_isrs), features)


def _endpoints(path: str, read: _Registration) -> list[Endpoint]:
    """The listeners in a registration. Raises MalformedZnode."""
    if read.version == 1:
        if read.host is None:
            raise MalformedZnode(path, reason="the registration has neither endpoints nor host")
        return [Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, read.host, _port(path, read.port))]
    if read.endpoints is None:
        raise MalformedZnode(path, reason="the registration has no endpoints")
    return [_endpoint(path, text, read.listener_security_protocol_map) for text in read.endpoints]


def _endpoint(path: str, text: str, protocols: Mapping[str, str] | None) -> Endpoint:
    """One listener, written NAME://host:port. Raises MalformedZnode."""
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise MalformedZnode(path, reason=f"the endpoint {text!r} is not LISTENER://host:port")
    listener = match[1].upper()
    if protocols is None:
        protocol: str | None = listener
    else:
        protocol = {name.upper(): value for name, value in protocols.items()}.get(listener)
    if protocol is None or protocol not in SecurityProtocol.__members__:
        raise MalformedZnode(
            path, reason=f"the listener {listener} has no known security protocol in listener_security_protocol_map"
        )
    return Endpoint(listener, SecurityProtocol[protocol], match[2], _port(path, int(match[3])))


def _port(path: str, number: int) -> int:
    """A valid port, or -1. Raises MalformedZnode."""
    if not -1 <= number <= MAX_PORT:
        raise MalformedZnode(path, reason=f"the registration has port {number}, but valid are -1 to {MAX_PORT}")
    return number
