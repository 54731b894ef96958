"""What producers do with transactions, and what an operator asks: each function adds steps to a draft."""

from collections.abc import Callable
from typing import Any, Final

from tests.differential.coordinators import group_actions
from tests.differential.coordinators.draft import (
    ADD,
    ADD_OFFSETS,
    COMMIT,
    DELETE,
    END,
    FETCH,
    INIT,
    LIST_TRANSACTIONS,
    MARGIN_S,
    MARK,
    PRODUCE,
    PRODUCE_MIN,
    SHORT_MS,
    TXN_COMMIT,
    Draft,
)
from tests.differential.coordinators.names import DATA, OWN
from tests.differential.coordinators.requests import NOWHERE, STRANGER
from tests.differential.coordinators.script import OPERATOR

from klamm.coordinator.topic_partitions import OFFSETS_TOPIC, TRANSACTIONS_TOPIC


def init(d: Draft) -> None:
    who = d.some_producer()
    options: dict[str, Any] = {"v": d.version(INIT)}
    if d.one_in(3):
        options |= d.rng.choice(
            (
                {"continues": True, "v": d.rng.randint(3, INIT)},
                {"continues": True, "v": d.rng.randint(3, INIT), "epoch": -1},
                {"continues": True, "v": d.rng.randint(3, INIT), "epoch": 1},
                {"continues": True, "v": INIT, "as": d.some_producer()},
                {"continues": True, "v": INIT, "producer": "unknown"},
                {"timeout": 0},
                {"timeout": 99_999_999},
                {"id": ""},
                {"id": None},
                {"at": "other"},
            )
        )
    if options.get("continues"):
        # klamm lets no older epoch abort an open transaction, so none is open that is not the producer's own
        for _ in range(2):
            d.add(who, "init", v=d.version(INIT))
        if options.keys() == {"v", "continues"} and d.one_in(2):
            d.add(who, "add_partitions", v=d.version(3), partitions=[[DATA, 0]])
    d.add(who, "init", **options)


def _oddness(d: Draft) -> dict[str, Any]:
    """What may be wrong with the request of a producer; mostly nothing."""
    if not d.one_in(6):
        return {}
    odd: dict[str, Any] = d.rng.choice(
        (
            {"epoch": 1},
            {"epoch": -1},
            {"as": d.some_producer()},
            {"producer": "unknown"},
            {"id": ""},
            {"id": d.rng.choice(("x", "y", "n"))},
            {"at": "other"},
        )
    )
    return odd


def add_partitions(d: Draft) -> None:
    partitions = d.rng.choice(([[DATA, 0]], [[DATA, 1]], [[DATA, 0], [DATA, 1]], [[NOWHERE, 0], [DATA, 0]]))
    version = d.version(3) if not d.one_in(4) else d.rng.randint(4, ADD)
    verify = {"verify": True} if version >= 4 and d.one_in(2) else {}
    d.add(d.some_producer(), "add_partitions", v=version, partitions=partitions, **verify, **_oddness(d))


def produce(d: Draft) -> None:
    options: dict[str, Any] = {"partition": d.rng.randrange(2), "count": d.rng.choice((1, 1, 3))}
    odd = _oddness(d)
    odd.pop("at", None)
    if d.one_in(10):
        options["sequence"] = d.rng.choice((1, -1, 5))
    if d.one_in(15):
        options["transactional"] = False
    d.add(d.some_producer(), "produce", v=d.version(PRODUCE, PRODUCE_MIN), **options, **odd)


def end(d: Draft) -> None:
    d.add(d.some_producer(), "end", v=d.version(END), commits=not d.one_in(3), **_oddness(d))


def add_offsets(d: Draft) -> None:
    group = {"group": "h"} if d.one_in(8) else {}
    d.add(d.some_producer(), "add_offsets", v=d.version(ADD_OFFSETS), **group, **_oddness(d))


def txn_commit(d: Draft) -> None:
    options: dict[str, Any] = {"v": d.version(TXN_COMMIT), "offsets": group_actions.some_offsets(d)}
    if d.one_in(3):
        options["metadata"] = d.rng.choice((None, "", "note", "long"))
    if d.one_in(3):
        options["leader_epoch"] = 2
    if d.one_in(2):
        options["of"] = d.some_member()
        options |= d.rng.choice(({}, {}, {"generation": 1}, {"generation": None}, {"member": STRANGER}))
    if d.one_in(10):
        options["group"] = "h"
    d.add(d.some_producer(), "txn_commit", **options, **_oddness(d))


def transaction(d: Draft) -> None:
    """A transaction as it should be, sometimes without its end."""
    who = d.some_producer()
    if not d.one_in(3):
        d.add(who, "init", v=d.version(INIT))
        d.add(who, "init", v=d.version(INIT))
    if not d.one_in(4):
        d.add(who, "add_partitions", v=d.version(3), partitions=[[DATA, 0], [DATA, 1]])
        d.add(who, "produce", v=d.version(PRODUCE, PRODUCE_MIN), partition=d.rng.randrange(2))
    if not d.one_in(3):
        d.add(who, "add_offsets", v=d.version(ADD_OFFSETS))
        d.add(who, "txn_commit", v=d.version(TXN_COMMIT), offsets=group_actions.some_offsets(d))
    if not d.one_in(3):
        d.add(who, "end", v=d.version(END), commits=not d.one_in(3))


def mark(d: Draft) -> None:
    if not d.one_in(3):
        return end(d)
    options: dict[str, Any] = {"partition": d.rng.randrange(2), "commits": d.one_in(3)}
    d.add(d.some_producer(), "mark", v=d.version(MARK), **options)
    return None


def look_at_transactions(d: Draft) -> None:
    verb = d.rng.choice(("describe_transactions", "list_transactions", "describe_producers", "list_offsets"))
    if verb == "describe_transactions":
        ids = d.rng.choice((["x"], ["x", "y"], ["n"], [""]))
        extra: dict[str, Any] = {"at": "other"} if d.one_in(6) else {}
        d.add(OPERATOR, verb, ids=ids, **extra)
    elif verb == "list_transactions":
        states = d.rng.choice(([], ["Ongoing"], ["Empty", "CompleteCommit"], ["nonsense"], ["ongoing"]))
        of: dict[str, Any] = {"of": ["p1", "p3"]} if d.one_in(3) else {}
        d.add(OPERATOR, verb, v=d.version(LIST_TRANSACTIONS), states=states, **of)
    elif verb == "describe_producers":
        d.add(OPERATOR, verb, partition=d.rng.randrange(2))
    else:
        d.add(OPERATOR, verb, v=d.version(9, 2), partition=d.rng.randrange(2), committed=d.rng.randrange(2))


def move_a_transaction(d: Draft) -> None:
    """A coordinator moves while a transaction is open, perhaps with offsets of a group."""
    who = d.some_producer()
    d.add(who, "init", v=d.version(INIT))
    d.add(who, "init", v=d.version(INIT))
    d.add(who, "add_partitions", v=d.version(3), partitions=[[DATA, 0], [DATA, 1]])
    d.add(who, "produce", v=d.version(PRODUCE, PRODUCE_MIN), partition=0)
    d.add(who, "add_offsets", v=d.version(ADD_OFFSETS))
    d.add(who, "txn_commit", v=d.version(TXN_COMMIT), offsets=[[DATA, 0, 5], [DATA, 1, 77]])
    for topic in d.rng.choice(((OFFSETS_TOPIC,), (TRANSACTIONS_TOPIC,), (OFFSETS_TOPIC, TRANSACTIONS_TOPIC))):
        d.add(OPERATOR, "move", topic=topic)
    d.add(OPERATOR, "fetch", v=FETCH, stable=d.one_in(2))
    if d.one_in(2):
        d.add(who, "txn_commit", v=d.version(TXN_COMMIT), offsets=[[DATA, 0, 0]])
    if d.one_in(3):
        d.add(OPERATOR, "delete_offsets", partitions=[[DATA, 0]])
    if d.one_in(3):
        d.add(OPERATOR, "delete_groups", v=d.version(DELETE), groups=["g"])
    if d.one_in(3):
        d.add(who, "init", v=d.version(INIT))
    d.add(who, "end", v=d.version(END), commits=not d.one_in(3))
    if d.one_in(3):
        d.add(OPERATOR, "move", topic=OFFSETS_TOPIC)
    d.add(OPERATOR, "fetch", v=FETCH, stable=True)


def look_at_unstable_offsets(d: Draft) -> None:
    """Offsets of an open transaction: not to be seen, unstable, and then committed or dropped."""
    who = d.some_producer()
    d.add(who, "init", v=d.version(INIT))
    d.add(who, "init", v=d.version(INIT))
    d.add(who, "add_offsets", v=d.version(ADD_OFFSETS))
    if d.one_in(2):
        d.add("m1", "commit", v=d.version(COMMIT), offsets=[[DATA, 0, 1]], generation=None, member="")
    d.add(who, "txn_commit", v=d.version(TXN_COMMIT), offsets=[[DATA, 0, 5], [DATA, 1, 7]])
    both = [[DATA, 0], [DATA, 1]]
    d.add(OPERATOR, "fetch", v=d.rng.randint(7, FETCH), partitions=both, stable=True)
    if d.one_in(2):
        group_actions.commit(d)
    if d.one_in(3):
        d.add(OPERATOR, "delete_offsets", partitions=[[DATA, 0]])
    if d.one_in(3):
        other = d.some_producer()
        d.add(other, "init", v=d.version(INIT))
        d.add(other, "add_offsets", v=d.version(ADD_OFFSETS))
        d.add(other, "txn_commit", v=d.version(TXN_COMMIT), offsets=[[DATA, 0, 6]])
    d.add(who, "end", v=d.version(END), commits=not d.one_in(3))
    d.add(OPERATOR, "fetch", v=d.rng.randint(7, FETCH), partitions=both, stable=True)


def time_out_a_transaction(d: Draft) -> None:
    if not d.uses_timers:
        return transaction(d)
    who = d.some_producer()
    d.add(who, "init", v=d.version(INIT), timeout=SHORT_MS)
    d.add(who, "init", v=d.version(INIT), timeout=SHORT_MS)
    d.add(who, "add_partitions", v=d.version(3), partitions=[[DATA, 0]])
    d.add(who, "produce", v=d.version(PRODUCE, PRODUCE_MIN), partition=0)
    d.add(OPERATOR, "wait", seconds=SHORT_MS / 1000 + MARGIN_S)
    d.add(who, "end", v=d.version(END), commits=True)
    return None


def delete_a_topic(d: Draft) -> None:
    """A topic is deleted while a transaction has it, and offsets of it: the transaction ends without it."""
    who = d.some_producer()
    group_actions.keep_the_group(d)
    d.add(OPERATOR, "create_topic")
    d.add(who, "init", v=d.version(INIT))
    d.add(who, "init", v=d.version(INIT))
    d.add(who, "add_partitions", v=d.version(3), partitions=[[OWN, 0], [DATA, 0]])
    if d.one_in(2):
        d.add(who, "add_offsets", v=d.version(ADD_OFFSETS))
        d.add(who, "txn_commit", v=d.version(TXN_COMMIT), offsets=[[OWN, 0, 5], [DATA, 0, 7]])
    d.add(OPERATOR, "delete_topic")
    if d.one_in(2):
        d.add(OPERATOR, "describe_transactions", ids=["x", "y"])
    if d.one_in(3):
        d.add(OPERATOR, "move", topic=TRANSACTIONS_TOPIC)
    d.add(who, "end", v=d.version(END), commits=not d.one_in(3))
    d.add(OPERATOR, "fetch", v=FETCH, partitions=[[OWN, 0], [DATA, 0]], stable=True)


WEIGHTS: Final[dict[Callable[[Draft], Any], int]] = {
    init: 2,
    add_partitions: 2,
    produce: 3,
    end: 2,
    add_offsets: 1,
    txn_commit: 2,
    transaction: 3,
    mark: 1,
    look_at_transactions: 1,
    group_actions.fetch: 1,
    time_out_a_transaction: 2,
    move_a_transaction: 1,
    look_at_unstable_offsets: 1,
}
"""How often each action is drawn."""
