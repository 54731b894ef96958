"""What group members and an operator do with a group: each function adds steps to a draft."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.differential.coordinators.draft import (
    COMMIT,
    DELETE,
    DESCRIBE,
    FETCH,
    HEARTBEAT,
    JOIN,
    LEAVE,
    LIST,
    MARGIN_S,
    MEMBERS,
    SHORT_MS,
    STATIC_SINCE,
    SYNC,
    Draft,
)
from tests.differential.coordinators.names import DATA, OWN
from tests.differential.coordinators.requests import NOWHERE, STRANGER
from tests.differential.coordinators.script import OPERATOR, STATIC

from klamm.coordinator.topic_partitions import OFFSETS_TOPIC


def _join_options(d: Draft, who: str, **options: Any) -> dict[str, Any]:
    oldest = STATIC_SINCE if who in STATIC and not d.one_in(8) else 0
    found: dict[str, Any] = {"v": d.version(JOIN, oldest), "protocols": ["range", "sticky"]}
    if d.one_in(4):
        found["protocols"] = d.rng.choice((["range"], ["range"], ["sticky"]))
    if d.one_in(10):
        found["subscription"] = d.rng.randint(0, 3)
    if d.one_in(12):
        found["topics"] = d.rng.choice(([], [DATA, "other"], ["other"]))
    if d.one_in(25):
        found["garbage"] = True
    return found | options


def enter(d: Draft) -> None:
    who = d.rng.choice(MEMBERS)
    d.add(who, "enter", **_join_options(d, who))
    if who not in d.joined:
        d.joined.append(who)


def rebalance(d: Draft) -> None:
    """Members join and get their assignments: a rebalance as it should be."""
    if not d.joined or d.one_in(2):
        enter(d)
    members = list(d.joined)
    for who in members:
        d.add(who, "enter", **_join_options(d, who))
    for who in members:
        d.add(who, "sync", v=d.version(SYNC), **({"gives": "some"} if d.one_in(12) else {}))


def join_oddly(d: Draft) -> None:
    who = d.rng.choice(MEMBERS)
    odd: dict[str, Any] = d.rng.choice(
        (
            {"member": STRANGER},
            {"member": d.rng.choice(MEMBERS)},
            {"member": ""},
            {"session": 10},
            {"session": 99_999_999},
            {"type": "connect"},
            {"type": ""},
            {"protocols": []},
            {"protocols": ["other"]},
            {"group": ""},
            {"at": "other"},
        )
    )
    d.add(who, "join", **_join_options(d, who, **odd))


def sync(d: Draft) -> None:
    who = d.some_member()
    odd: dict[str, Any] = {}
    if d.one_in(3):
        odd = d.rng.choice(
            (
                {"generation": 1},
                {"generation": -1},
                {"generation": None},
                {"member": STRANGER},
                {"member": d.rng.choice(MEMBERS)},
                {"gives": "none"},
                {"gives": "always"},
                {"gives": STRANGER},
                {"type": "connect"},
                {"protocol": "other"},
                {"at": "other"},
                {"group": ""},
                {"group": "h"},
            )
        )
    d.add(who, "sync", v=d.version(SYNC), **odd)


def heartbeat(d: Draft) -> None:
    who = d.some_member()
    odd: dict[str, Any] = {}
    if d.one_in(3):
        odd = d.rng.choice(
            (
                {"generation": 1},
                {"generation": None},
                {"member": STRANGER},
                {"member": d.rng.choice(MEMBERS)},
                {"instance": "i1"},
                {"at": "other"},
                {"group": ""},
                {"group": "h"},
            )
        )
    d.add(who, "heartbeat", v=d.version(HEARTBEAT), **odd)


def leave(d: Draft) -> None:
    who = d.some_member()
    options: dict[str, Any] = {"v": d.version(LEAVE)}
    if options["v"] >= 3 and d.one_in(3):
        options["members"] = d.rng.sample((*MEMBERS, STRANGER), d.rng.randint(0, 3))
        options["by_instance"] = d.one_in(2)
    elif d.one_in(6):
        options |= d.rng.choice(({"member": STRANGER}, {"group": ""}, {"group": "h"}, {"at": "other"}))
    d.add(who, "leave", **options)
    gone = options.get("members", [who])
    d.joined = [name for name in d.joined if name not in gone]


def drop(d: Draft) -> None:
    """The connection of a member breaks, perhaps while its request waits; it comes back."""
    who = d.some_member()
    d.add(who, "drop")
    if not d.one_in(3):
        d.add(who, "enter", **_join_options(d, who))


def some_offsets(d: Draft) -> list[list[Any]]:
    places = [[DATA, 0], [DATA, 1], [NOWHERE, 0]]
    chosen = d.rng.sample(places, d.rng.choice((1, 1, 2, 2, 3)))
    return [[topic, number, d.rng.choice((0, 5, 77, -1, 2**40))] for topic, number in chosen]


def commit(d: Draft) -> None:
    who = d.some_member()
    options: dict[str, Any] = {"v": d.version(COMMIT), "offsets": some_offsets(d)}
    if d.one_in(2):
        options["metadata"] = d.rng.choice((None, "", "note", "note", "long"))
    if d.one_in(3):
        options["epoch"] = d.rng.choice((0, 3))
    if d.one_in(4):
        options |= {"retention": 3_600_000, "timestamp": 1_700_000_000_000}
    if d.one_in(3):
        options |= d.rng.choice(
            (
                {"generation": None, "member": ""},
                {"generation": None, "member": "", "group": "h"},
                {"generation": 1},
                {"generation": -1},
                {"generation": None},
                {"member": STRANGER},
                {"member": d.rng.choice(MEMBERS)},
                {"at": "other"},
            )
        )
    d.add(who, "commit", **options)


def fetch(d: Draft) -> None:
    version = d.version(FETCH)
    options: dict[str, Any] = {"v": version}
    if version < 2 or d.one_in(2):
        options["partitions"] = d.rng.choice(([[DATA, 0]], [[DATA, 0], [DATA, 1]], [[NOWHERE, 0], [DATA, 1]], []))
    if d.one_in(3):
        options["stable"] = True
    if version >= 8 and d.one_in(2):
        options["groups"] = d.rng.choice((["h"], ["g", "h"], ["g", ""]))
    if d.one_in(12):
        options["at"] = "other"
    d.add(OPERATOR, "fetch", **options)


def delete_offsets(d: Draft) -> None:
    partitions = d.rng.choice(([[DATA, 0]], [[DATA, 0], [DATA, 1]], [[NOWHERE, 0], [DATA, 1]], [["other", 0]], []))
    group: dict[str, Any] = {"group": d.rng.choice(("h", ""))} if d.one_in(4) else {}
    d.add(OPERATOR, "delete_offsets", partitions=partitions, **group)


def describe(d: Draft) -> None:
    groups = d.rng.choice((["g"], ["g"], ["g", "h"], ["", "g"], []))
    extra = {"at": "other"} if d.one_in(8) else {}
    d.add(OPERATOR, "describe", v=d.version(DESCRIBE), groups=groups, operations=d.one_in(2), **extra)


def list_groups(d: Draft) -> None:
    states = d.rng.choice(((), (), ("Stable",), ("stable", "EMPTY"), ("Dead",), ("Nonsense",), ("PreparingRebalance",)))
    types = d.rng.choice(((), (), ("classic",), ("Classic",), ("consumer",), ("nonsense",)))
    d.add(OPERATOR, "list_groups", v=d.version(LIST), states=list(states), types=list(types))


def delete_groups(d: Draft) -> None:
    groups = d.rng.choice((["g"], ["g"], ["h"], ["g", "h"], ["", "h"], ["g", "g"]))
    d.add(OPERATOR, "delete_groups", v=d.version(DELETE), groups=groups)


def empty_and_delete(d: Draft) -> None:
    for who in list(d.joined):
        d.add(who, "leave", v=d.version(LEAVE))
    d.joined = []
    d.add(OPERATOR, "delete_groups", v=d.version(DELETE), groups=["g"])


def let_a_session_expire(d: Draft) -> None:
    """One member joins with a short session and is never heard of again."""
    if not d.uses_timers or not d.joined:
        return heartbeat(d)
    doomed = d.rng.choice(d.joined)
    members = [*[name for name in d.joined if name != doomed], doomed]
    for who in members:
        d.add(who, "enter", **_join_options(d, who, protocols=["range"]))
    short = {"session": SHORT_MS} if d.one_in(2) else {"session": SHORT_MS, "rebalance": SHORT_MS}
    d.add(doomed, "enter", **_join_options(d, doomed, protocols=["range", "other"], **short))
    for who in members[:-1]:
        d.add(who, "enter", **_join_options(d, who, protocols=["range"]))
    for who in members:
        d.add(who, "sync", v=d.version(SYNC))
    d.add(OPERATOR, "wait", seconds=SHORT_MS / 1000 + MARGIN_S)
    d.joined.remove(doomed)
    for who in d.joined:
        d.add(who, "heartbeat", v=d.version(HEARTBEAT))
    return None


def let_a_member_id_expire(d: Draft) -> None:
    """A client is given a member id and does not come back with it."""
    if not d.uses_timers:
        return enter(d)
    d.add("m3", "join", v=d.rng.randint(4, JOIN), member="", session=SHORT_MS, protocols=["range"])
    d.add(OPERATOR, "wait", seconds=SHORT_MS / 1000 + MARGIN_S)
    d.add("m3", "join", v=JOIN, protocols=["range"])
    return None


def _short_round(d: Draft, protocols: Sequence[str]) -> list[str]:
    """All members join with a short rebalance timeout; the group's is the longest of them."""
    members = list(d.joined)
    for who in members:
        d.add(who, "enter", **_join_options(d, who, protocols=list(protocols), rebalance=SHORT_MS))
    return members


def miss_a_rebalance(d: Draft) -> None:
    """Some members join again in time; the others lose their place, unless they are static."""
    if not d.uses_timers or len(d.joined) < 2:
        return rebalance(d)
    members = _short_round(d, ["range"])
    members = _short_round(d, ["range"])
    for who in members:
        d.add(who, "sync", v=d.version(SYNC))
    punctual = d.rng.sample(members, d.rng.randint(1, len(members) - 1))
    for who in punctual:
        d.add(who, "enter", **_join_options(d, who, protocols=["range", "other"], rebalance=SHORT_MS))
    d.add(OPERATOR, "wait", seconds=SHORT_MS / 1000 + MARGIN_S)
    d.joined = [who for who in members if who in punctual or who in STATIC]
    for who in members:
        d.add(who, d.rng.choice(("heartbeat", "sync")), v=d.version(HEARTBEAT))
    return None


def miss_a_sync(d: Draft) -> None:
    """All join, and some do not ask for their assignments: they lose their place after the rebalance timeout."""
    if not d.uses_timers or len(d.joined) < 2:
        return rebalance(d)
    _short_round(d, ["range"])
    members = _short_round(d, ["range", "other"])
    _short_round(d, ["range", "other"])
    punctual = d.rng.sample(members, d.rng.randint(0, len(members) - 1))
    for who in punctual:
        d.add(who, "sync", v=d.version(SYNC))
    d.add(OPERATOR, "wait", seconds=SHORT_MS / 1000 + MARGIN_S)
    d.joined = punctual
    for who in members:
        d.add(who, d.rng.choice(("heartbeat", "sync")), v=d.version(HEARTBEAT))
    return None


def fence_a_static_member(d: Draft) -> None:
    """Two clients with one instance id: the second fences the first."""
    first, second = d.rng.choice((("s1", "s1b"), ("s1b", "s1")))
    same = {"protocols": ["range"]} if d.one_in(2) else {}
    for who in (first, second):
        version = d.rng.randint(STATIC_SINCE, JOIN)
        d.add(who, "enter", **_join_options(d, who, **same) | {"v": version, "member": ""})
        if not d.one_in(3):
            d.add(who, "sync", v=d.version(SYNC, 3))
    verbs = ["heartbeat", "sync", "commit", "leave", "join"]
    for verb in d.rng.sample(verbs, 3):
        extra: dict[str, Any] = {"offsets": [[DATA, 0, 5]]} if verb == "commit" else {}
        oldest = {"commit": 7, "join": STATIC_SINCE}.get(verb, 3)
        newest = {"commit": COMMIT, "join": JOIN, "leave": LEAVE, "sync": SYNC}.get(verb, HEARTBEAT)
        d.add(first, verb, v=d.rng.randint(oldest, newest), **extra)
    d.joined = [who for who in d.joined if who != first]
    if second not in d.joined:
        d.joined.append(second)


def move_a_group(d: Draft) -> None:
    """The coordinator moves: with members that wait, or with a stable group, whose members go on."""
    if d.one_in(2):
        rebalance(d)
    else:
        for who in d.joined[: d.rng.randint(1, 3)]:
            d.add(who, "enter", **_join_options(d, who))
    d.add(OPERATOR, "move", topic=OFFSETS_TOPIC)
    for who in d.joined:
        verb = d.rng.choice(("heartbeat", "heartbeat", "sync", "enter"))
        options = _join_options(d, who) if verb == "enter" else {"v": d.version(HEARTBEAT)}
        d.add(who, verb, **options)
    commit(d)


def crowd(d: Draft) -> None:
    """More members than group.max.size.

    Each static member enters once: klamm lets it restart in a full group, and Kafka does not.
    """
    by_instance = {STATIC.get(who, who): who for who in d.rng.sample(MEMBERS, len(MEMBERS))}
    for who in by_instance.values():
        d.add(who, "enter", **_join_options(d, who, protocols=["range"]))
    d.joined = list(by_instance.values())


def commit_without_a_group(d: Draft) -> None:
    """A client that only stores offsets, as one that assigns partitions itself; sometimes beside members."""
    if not d.one_in(3):
        for who in d.joined:
            d.add(who, "leave", v=d.version(LEAVE))
        d.joined = []
    nobody = {"generation": None, "member": ""}
    d.add("m1", "commit", v=d.version(COMMIT), offsets=some_offsets(d), metadata="note", **nobody)
    d.add("m1", "commit", v=d.version(COMMIT, 5), offsets=[[DATA, 0, 9]], **nobody)
    fetch(d)
    delete_offsets(d)


def keep_the_group(d: Draft) -> None:
    """If it has no members, commit an offset: with any topic Kafka deletes groups that have neither."""
    d.add("m1", "commit", v=COMMIT, offsets=[[DATA, 1, 3]], generation=None, member="")


def delete_a_topic(d: Draft) -> None:
    """The topic of committed offsets is deleted: they go with it."""
    who = d.some_member()
    nobody = {"generation": None, "member": ""} if d.one_in(2) else {}
    keep_the_group(d)
    d.add(OPERATOR, "create_topic")
    d.add(who, "commit", v=d.version(COMMIT, 1), offsets=[[OWN, 0, 5], [DATA, 0, 7]], **nobody)
    d.add(OPERATOR, "fetch", v=d.version(FETCH, 1), partitions=[[OWN, 0], [DATA, 0]])
    if d.one_in(3):
        d.add(OPERATOR, "move", topic=OFFSETS_TOPIC)
    d.add(OPERATOR, "delete_topic")
    d.add(OPERATOR, "fetch", v=d.version(FETCH, 1), partitions=[[OWN, 0], [DATA, 0]])
    d.add(who, "commit", v=d.version(COMMIT, 1), offsets=[[OWN, 0, 5], [DATA, 1, 7]], **nobody)


WEIGHTS: Final[dict[Callable[[Draft], Any], int]] = {
    rebalance: 3,
    enter: 2,
    join_oddly: 1,
    sync: 2,
    heartbeat: 2,
    leave: 2,
    drop: 1,
    commit: 3,
    fetch: 1,
    delete_offsets: 1,
    describe: 1,
    list_groups: 1,
    delete_groups: 1,
    empty_and_delete: 1,
    let_a_session_expire: 2,
    let_a_member_id_expire: 2,
    miss_a_rebalance: 2,
    miss_a_sync: 2,
    fence_a_static_member: 1,
    move_a_group: 1,
    crowd: 1,
    commit_without_a_group: 1,
}
"""How often each action is drawn."""
