"""The random streams of faults and verbs, by their names.

A recorded seed replays its schedule only if each action draws the same numbers as before. Therefore an action that is
renamed keeps its stream: the table maps such actions to their former names.
"""

from typing import Final

FORMER_NAMES: Final = {
    # faults
    "expire new controller": "expire taking office",
    "expire busy controller": "expire while asked",
    "expire during registration": "expire registering",
    "lose write response": "lose answer",
    "lose first state responses": "lose first states",
    "lose ISR change responses": "lose ISR changes",
    "server lags": "lag",
    "znodes outlive session": "outlived session",
    "registration outlives session": "outlived registration",
    "lose connect response": "unlearned session",
    "split network": "halves",
    "cut link": "cut",
    "isolate from brokers": "only ZooKeeper",
    "isolate from ZooKeeper": "only brokers",
    "cut links one by one": "swizzle",
    "truncate message": "tear",
    "slow control requests": "backlog",
    "delete /controller": "move",
    "delay control requests": "hold orders",
    "delay broker responses": "late answers",
    "redeliver control requests": "replay orders",
    "expire follower during ISR change": "overtake asker",
    "duplicate LeaderAndIsr": "echo orders",
    "log directory fails": "directory dies",
    # verbs
    "create irregular topic": "create odd topic",
    "controlled shutdown": "leave in order",
    "follower lags and catches up": "flap",
    "write malformed znode": "write nonsense",
    "remove leader by reassignment": "drop leader",
    "query controller": "ask around",
    "send invalid AlterPartition": "ask oddly",
    "shut down together": "leave together",
    "repair unreadable topic": "mend topic",
    "recreate topic in ZooKeeper": "delete by hand",
    "forbid by ACL": "forbid",
    "controlled restart": "stop in order",
}


def stream_of(action: str) -> str:
    """The name of the random stream of a fault or verb."""
    return FORMER_NAMES.get(action, action)
