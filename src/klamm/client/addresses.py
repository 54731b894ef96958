"""Where brokers listen."""

from klamm.model.cluster import Address


def parse_addresses(text: str) -> tuple[Address, ...]:
    """The addresses in `host:port,host:port`, without duplicates. Raises ValueError."""
    found = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise ValueError(f"{part!r} is not HOST:PORT, for example 127.0.0.1:9092")
        found.append(Address(host.strip("[]"), int(port)))
    if not found:
        raise ValueError("has no broker; give HOST:PORT[,HOST:PORT], for example 127.0.0.1:9092")
    return tuple(dict.fromkeys(found))
