"""The connect string of an ensemble, `h1:2181,h2:2181/chroot`. Source: ConnectStringParser.java."""

from functools import lru_cache
from typing import Final, NamedTuple

from klamm.model.errors import KlammError

DEFAULT_PORT: Final = 2181


class WrongHosts(KlammError):
    """The connect string is invalid; the message names the part."""


class WrongPath(KlammError):
    """The text is not a valid znode path; the message has the reason."""


class Server(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Ensemble(NamedTuple):
    """The servers and the chroot of a connect string."""

    servers: tuple[Server, ...]
    chroot: str  # empty, or starts with a slash and does not end with one


def parse_hosts(text: str) -> Ensemble:
    """Parse a connect string; the default port is 2181, IPv6 addresses are in brackets.

    Raises WrongHosts, WrongPath (for the chroot).
    """
    hosts, slash, chroot = text.strip().partition("/")
    chroot = chroot.rstrip("/")
    if chroot:
        check_path("/" + chroot)
    servers = tuple(_parse_server(part.strip(), text) for part in hosts.split(",") if part.strip())
    if not servers:
        raise WrongHosts(f"{text!r} has no ZooKeeper server; write it as host1:2181,host2:2181/chroot")
    return Ensemble(tuple(dict.fromkeys(servers)), slash + chroot if chroot else "")


def _parse_server(part: str, text: str) -> Server:
    """Return host and port of one entry of the connect string `text`; the default port is 2181. Raises WrongHosts."""
    if part.startswith("["):
        host, bracket, rest = part[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise WrongHosts(f"{part!r} in {text!r}: an IPv6 address is written [::1]:2181")
        port = rest[1:] if rest else str(DEFAULT_PORT)
    elif part.count(":") > 1:
        raise WrongHosts(f"{part!r} in {text!r}: put an IPv6 address in brackets, for example [{part}]:2181")
    else:
        host, colon, port = part.partition(":")
        port = port if colon else str(DEFAULT_PORT)
    if not host:
        raise WrongHosts(f"{part!r} in {text!r} has no host name before the port; write it as host:2181")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise WrongHosts(f"{part!r} in {text!r}: {port!r} is not a port; write a number from 1 to 65535")
    return Server(host, int(port))


@lru_cache(maxsize=4096)
def check_path(path: str) -> None:
    """Raise WrongPath if ZooKeeper would refuse the path. Source: PathUtils.java."""
    if not path.startswith("/"):
        raise WrongPath(f"znode path {path!r} does not start with a slash; write for example /brokers")
    if path == "/":
        return
    if path.endswith("/"):
        raise WrongPath(f"znode path {path!r} ends with a slash; remove it")
    if "//" in path:
        raise WrongPath(f"znode path {path!r} has two slashes in a row; remove one")
    if "/./" in path + "/" or "/../" in path + "/":
        raise WrongPath(f"znode path {path!r} contains . or .. as a name; write the full path")
    if not path.isprintable() and any(_is_refused(character) for character in path):
        raise WrongPath(f"znode path {path!r} contains a control character, which ZooKeeper refuses; remove it")


def _is_refused(character: str) -> bool:
    """Whether ZooKeeper refuses paths with this character."""
    value = ord(character)
    return value < 0x20 or 0x7F <= value <= 0x9F or 0xD800 <= value <= 0xF8FF or 0xFFF0 <= value <= 0xFFFF
