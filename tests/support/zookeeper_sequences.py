"""Sequences of ZooKeeper operations made by hypothesis, and what a client saw of one: to compare two ensembles by."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from klamm.zk.acl import OPEN_ACL, Acl, Permission
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import ZkError
from klamm.zk.jute import Stat
from klamm.zk.operations import Check, ChildrenResult, Create, Delete, GetResult, Result, Set
from klamm.zk.watches import WatchEvent

Step = tuple[Any, ...]

NAMES = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/z", "/e")
paths = st.sampled_from(NAMES)
contents = st.sampled_from([None, b"", b"1", b"two"])
versions = st.sampled_from([-1, -1, 0, 0, 1, 2])
flags = st.booleans()
ACLS = (OPEN_ACL, OPEN_ACL, OPEN_ACL, (Acl(Permission.READ, "world", "anyone"),), (), (Acl(31, "auth", ""),))
acl = st.sampled_from(ACLS)

operations = st.one_of(
    st.builds(Create, paths, contents, flags, flags, st.just(OPEN_ACL)),
    st.builds(Create, paths, contents, st.just(False), st.just(False), st.just(OPEN_ACL)),
    st.builds(Set, paths, contents, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)
steps = st.one_of(
    st.tuples(st.just("create"), paths, contents, flags, flags),
    st.tuples(st.just("create"), paths, contents, st.just(False), st.just(False)),
    st.tuples(st.just("create-acl"), paths, acl),
    st.tuples(st.just("set"), paths, contents, versions),
    st.tuples(st.just("delete"), paths, versions),
    st.tuples(st.just("get"), paths, flags),
    st.tuples(st.just("exists"), paths, flags),
    st.tuples(st.just("children"), paths, flags),
    st.tuples(st.just("multi"), st.lists(operations, min_size=1, max_size=5)),
    st.tuples(st.just("get-many"), st.lists(paths, min_size=1, max_size=4)),
    st.tuples(st.just("children-many"), st.lists(paths, min_size=1, max_size=4)),
    st.tuples(st.just("get-acl"), paths),
    st.tuples(st.just("set-acl"), paths, acl, versions),
    st.tuples(st.just("sync"), paths),
)
turns = st.tuples(st.sampled_from([0, 0, 1]), steps)
"""Which of two clients, and what it does."""


def sequences(shortest: int, longest: int) -> st.SearchStrategy[list[tuple[int, Step]]]:
    return st.lists(turns, min_size=shortest, max_size=longest)


async def carry_out(
    clients: Sequence[ZooKeeper], sequence: Sequence[tuple[int, Step]], end: Callable[[], Awaitable[None]]
) -> list[Any]:
    """What each step came to, and the watches heard by the time of each; `end` is awaited before the last look."""
    seen: list[Any] = []
    for number, client in enumerate(clients):

        def note(event: WatchEvent, number: int = number) -> None:
            heard.append((number, event.type.name, event.path))

        client.on_watch = note
    heard: list[Any] = []
    for who, step in sequence:
        seen.append((who, step[0], await _outcome(clients[who], step)))
        # the other one's watches have come, too, once it is answered
        await clients[1 - who].exists("/")
        seen += sorted(heard, key=lambda e: e[0])
        heard.clear()
    await end()
    seen.append(await tree_of(clients[0]))
    return in_order_of_zxids(seen)


async def _outcome(client: ZooKeeper, step: Step) -> Any:
    try:
        return await _carry_out(client, step)
    except ZkError as error:
        return error.code.name


async def _carry_out(client: ZooKeeper, step: Step) -> Any:
    kind, *rest = step
    match kind:
        case "create":
            return await client.create(rest[0], rest[1], ephemeral=rest[2], sequential=rest[3])
        case "create-acl":
            return await client.create(rest[0], b"", acl=rest[1])
        case "multi":
            return await client.multi(rest[0])
        case "get-many":
            return await client.get_many(rest[0])
        case "children-many":
            return [r._replace(children=sorted(r.children)) for r in await client.children_many(rest[0])]
        case "children":
            names, stat = await client.children(rest[0], rest[1])
            return sorted(names), stat
        case "set-acl":
            return await client.set_acl(rest[0], rest[1], rest[2])
        case "get-acl":
            return await client.get_acl(rest[0])
        case _:
            method: Any = getattr(client, kind)
            return await method(*rest)


async def tree_of(client: ZooKeeper, path: str = "/") -> list[Any]:
    """Every znode with its data and stat."""
    try:
        data, stat = await client.get(path)
        names, _ = await client.children(path)
    except ZkError as error:
        return [(path, error.code.name)]
    found: list[Any] = [(path, data, stat)]
    for name in sorted(names):
        found += await tree_of(client, f"{path.rstrip('/')}/{name}")
    return found


def in_order_of_zxids(seen: Any) -> Any:
    """Zxids as their rank, sessions as whether there is one, times left out: what two ensembles can have in common."""
    zxids: set[int] = set()
    _each_stat(seen, lambda stat: zxids.update((stat.czxid, stat.mzxid, stat.pzxid)))
    rank = {zxid: number for number, zxid in enumerate(sorted(zxids))}
    return _each_stat(
        seen,
        lambda s: s._replace(
            czxid=rank[s.czxid],
            mzxid=rank[s.mzxid],
            pzxid=rank[s.pzxid],
            ctime=0,
            mtime=0,
            ephemeral_owner=bool(s.ephemeral_owner),
        ),
    )


def _each_stat(value: Any, call: Callable[[Stat], Any]) -> Any:
    if isinstance(value, Stat):
        return call(value)
    if isinstance(value, Result | GetResult | ChildrenResult):
        return tuple(_each_stat(list(value), call))
    if isinstance(value, tuple | list):
        return [_each_stat(v, call) for v in value]
    return value


def of_the_model(sequence: Sequence[tuple[int, Step]]) -> list[Any]:
    from tests.support.model_zookeeper import ModelZooKeeper

    async def story(model: ModelZooKeeper) -> list[Any]:
        root = await model.client("root")
        await root.create("/t", None)
        clients = [await model.client(name, "zk-1:2181/t") for name in "ab"]
        return await carry_out(clients, sequence, clients[1].close)

    return ModelZooKeeper().run(story)


def of_a_real_one(connect_string: str, chroot: str, sequence: Sequence[tuple[int, Step]]) -> list[Any]:
    from klamm.runtime.world import real_world

    async def story() -> list[Any]:
        clients = [ZooKeeper(real_world(), connect_string, 30_000, chroot) for _ in range(2)]
        for client in clients:
            await client.connect(10)
        await clients[0].ensure_chroot()
        try:
            return await carry_out(clients, sequence, clients[1].close)
        finally:
            await clients[0].close()

    return asyncio.run(story())
