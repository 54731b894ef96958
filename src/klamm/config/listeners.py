"""Listener lists, `NAME://host:port,...`, with their protocols. Source: CoreUtils.listenerListToEndPoints."""

import re
from collections.abc import Mapping
from typing import Final

from klamm.model.brokers import Endpoint, SecurityProtocol

_LISTENER: Final = re.compile(r"\s*([^:/,\s]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:\[\]/]*)):(-?\d+)\s*")


def parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """Return the security protocol of each listener of `NAME:PROTOCOL,...`; names become upper case.

    Raises ValueError.
    """
    found: dict[str, SecurityProtocol] = {}
    for item in text.split(","):
        name, colon, protocol = (part.strip() for part in item.rpartition(":"))
        if not colon or protocol.upper() not in SecurityProtocol.__members__:
            known = ", ".join(SecurityProtocol.__members__)
            raise ValueError(f"{item.strip()!r} is not LISTENER:PROTOCOL; give one of the protocols {known}")
        if name.upper() in found:
            raise ValueError(f"the listener {name.upper()} is listed twice in the protocol map {text!r}; remove one")
        found[name.upper()] = SecurityProtocol[protocol.upper()]
    return found


def parse_listeners(text: str, protocols: Mapping[str, SecurityProtocol]) -> tuple[Endpoint, ...]:
    """Listeners in their order; an empty host means every address. Raises ValueError with the remedy."""
    found: list[Endpoint] = []
    for item in text.strip(" ,").split(","):
        match = _LISTENER.fullmatch(item)
        if match is None:
            raise ValueError(f"{item.strip()!r} is not NAME://host:port, for example PLAINTEXT://localhost:9092")
        name = match[1].upper()
        if name not in protocols:
            raise ValueError(f"listener.security.protocol.map names no protocol for the listener {name}; add it there")
        port = int(match[4])
        if not 0 <= port <= 65535:
            raise ValueError(f"the listener {name} has port {port}, which is not valid: write a number from 0 to 65535")
        found.append(Endpoint(name, protocols[name], match[2] or match[3] or "", port))
    names = [e.listener for e in found]
    if len(set(names)) != len(names):
        raise ValueError(f"listener names are repeated in {text!r}: give each listener a name of its own")
    return tuple(found)


def repeated_port(endpoints: tuple[Endpoint, ...]) -> int | None:
    """A port that two listeners share without being one IPv4 and one IPv6 address; None where there is none."""
    seen: dict[int, str] = {}
    for endpoint in endpoints:
        if endpoint.port == 0:
            continue
        if endpoint.port in seen and ((":" in seen[endpoint.port]) == (":" in endpoint.host)):
            return endpoint.port
        seen[endpoint.port] = endpoint.host
    return None
