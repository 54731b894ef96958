"""Read znodes, decoded; set or delete one to repair a cluster by hand."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from klamm.audit.snapshot import parse_auth
from klamm.cli.output import print_line
from klamm.model.errors import KlammError, UsageError
from klamm.runtime.main_loop import run_loop
from klamm.runtime.world import real_world
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import NoNode, ZkCode
from klamm.zk.jute import Stat
from klamm.zk.operations import Delete

T = TypeVar("T")

SESSION_MS: Final = 30_000
WIDTH: Final = 120
"""Length at which `tree` cuts values."""


class CannotRead(KlammError):
    pass


def run_with_session(
    zookeeper: str, timeout_s: float, ask: Callable[[ZooKeeper], Awaitable[T]], auth: Sequence[str] | None = None
) -> T:
    """Call `ask` with a ZooKeeper session; `auth` has `SCHEME:CREDENTIALS`. Raises CannotRead."""
    credentials = [parse_auth(text) for text in auth or ()]

    async def connect_and_ask() -> T:
        """Open a session, add the credentials, call `ask`, and close the session."""
        client = ZooKeeper(real_world(), zookeeper, SESSION_MS)
        try:
            await client.connect(timeout_s)
        except KlammError as error:
            raise CannotRead(f"Cannot read ZooKeeper at {zookeeper}: {error}.") from error
        try:
            for scheme, secret in credentials:
                await client.add_auth(scheme, secret)
            return await ask(client)
        except NoNode as error:
            raise CannotRead(
                f"There is no such znode at {zookeeper}: {error}. `klamm zk ls --zookeeper {zookeeper}` shows the "
                "znodes."
            ) from error
        finally:
            await client.close()

    return run_loop(connect_and_ask())


async def list_children(client: ZooKeeper, path: str) -> list[str]:
    """Return the names of the znode's children, sorted."""
    return sorted((await client.children(path))[0])


async def read_znode(client: ZooKeeper, path: str) -> dict[str, Any]:
    """Read value, stat and number of children of a znode."""
    (data, stat), (children, _) = await asyncio.gather(client.get(path), client.children(path))
    return {"path": path, "value": decode_value(data), "stat": stat_as_data(stat), "children": len(children)}


async def read_tree(client: ZooKeeper, path: str, depth: int) -> list[tuple[int, str, str]]:
    """Read `path` and all znodes below it, parents first, as (level, name, value on one line). Raises ZkError."""
    await client.get(path)
    found: dict[str, str] = {}
    level = [path]
    for _ in range(depth + 1):
        if not level:
            break
        for at, result in zip(level, await client.get_many(level), strict=True):
            readable = result.code is ZkCode.OK
            found[at] = one_line(decode_value(result.data)) if readable else f"({result.code.name})"
        listed = await client.children_many(level)
        level = [
            f"{at.rstrip('/')}/{child}" for at, r in zip(level, listed, strict=True) for child in sorted(r.children)
        ]
    base = path.rstrip("/").count("/")
    return [(at.rstrip("/").count("/") - base, at.rpartition("/")[2] or at, found[at]) for at in _sort_paths(found)]


# ---- changes by hand


class ZnodeState(NamedTuple):
    """A znode when it was read. A `version` of None: it does not exist."""

    path: str
    value: Any = None
    version: int | None = None
    below: tuple[str, ...] = ()
    """Its descendants, parents first."""


async def read_state(client: ZooKeeper, path: str) -> ZnodeState:
    """Read a znode and the paths below it."""
    try:
        data, stat = await client.get(path)
    except NoNode:
        return ZnodeState(path)
    below: list[str] = []
    level = [path]
    while level:
        listed = await client.children_many(level)
        level = [f"{at}/{child}" for at, r in zip(level, listed, strict=True) for child in sorted(r.children)]
        below += level
    return ZnodeState(path, decode_value(data), stat.version, tuple(below))


def encode_value(text: str) -> bytes:
    """Encode a value for a znode. Raises UsageError for malformed JSON, since most of Kafka's znodes contain JSON."""
    if text[:1] in ("{", "["):
        try:
            msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise UsageError(f"The value is not valid JSON: {error}. Correct it.") from error
    return text.encode()


async def write_state(client: ZooKeeper, before: ZnodeState, value: bytes) -> int:
    """Set or create the znode. Returns its new version. Raises ZkError if it changed since it was read."""
    if before.version is not None:
        return (await client.set(before.path, value, before.version)).version
    if parent := before.path.rpartition("/")[0]:
        await client.ensure_path(parent)
    await client.create(before.path, value)
    return 0


async def delete(client: ZooKeeper, before: ZnodeState) -> None:
    """Delete the znode and everything below it in one transaction.

    Raises KlammError if it changed since it was read.
    """
    assert before.version is not None, "the caller checks that the znode exists"
    results = await client.multi([*(Delete(at) for at in reversed(before.below)), Delete(before.path, before.version)])
    refused = [r.code.name for r in results if r.code not in (ZkCode.OK, ZkCode.RUNTIME_INCONSISTENCY)]
    if refused:
        raise KlammError(f"{before.path} was not deleted: {refused[0]}. Read it again, and repeat the command.")


# ---- decoding and printing


def _sort_paths(paths: Iterable[str]) -> list[str]:
    """Sort paths: parents before children, numbers by value."""
    return sorted(paths, key=lambda at: [(not p.isdigit(), int(p) if p.isdigit() else 0, p) for p in at.split("/")])


def decode_value(data: bytes | None) -> Any:
    """Decode a znode's value: JSON, else text, else bytes as hex; None for an empty znode."""
    if not data:
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex()


def one_line(value: Any) -> str:
    """The value on one line, cut at WIDTH characters."""
    text = "" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def stat_as_data(stat: Stat) -> dict[str, Any]:
    """Return the Stat for printing: versions, times in UTC, and the owner session of an ephemeral znode."""
    times = {name: _utc_text(getattr(stat, name)) for name in ("ctime", "mtime")}
    owner = f"{stat.ephemeral_owner:#x}" if stat.ephemeral_owner else None
    return {
        "version": stat.version,
        "czxid": stat.czxid,
        "mzxid": stat.mzxid,
        **times,
        "ephemeral_owner": owner,
    }


def _utc_text(ms: int) -> str:
    """Return milliseconds since 1970 as an ISO time in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def print_znode(found: dict[str, Any], as_json: bool) -> None:
    """Print value, Stat and number of children of the znode, as text or JSON."""
    if as_json:
        print_line(msgspec.json.encode(found).decode())
        return
    value = found["value"]
    pretty = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    print_line("(empty)" if value is None else pretty)
    for name, fact in found["stat"].items():
        print_line(f"{name} = {fact}")
    print_line(f"children = {found['children']}")


def print_tree(found: list[tuple[int, str, str]], as_json: bool) -> None:
    """Print the znodes of a subtree as (level, name, value): as an indented list or as JSON."""
    if as_json:
        rows = [{"level": level, "name": name, "value": value} for level, name, value in found]
        print_line(msgspec.json.encode(rows).decode())
        return
    for level, name, value in found:
        print_line(f"{'  ' * level}{name}{'  ' + value if value else ''}")
