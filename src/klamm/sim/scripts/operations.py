"""Scripted operations that are run with a fault at each of their steps; every random decision is given.

To add one, put it into `OPERATIONS`: the actions that prepare it, and those from `BEGINS_AT_S` on.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from klamm.sim.scripts.options import Options
from klamm.sim.scripts.script import ScheduledAction, Script
from klamm.zk.znodes import CONTROLLER, DELETE_TOPICS, LOG_DIR_EVENTS, PENDING_DELETIONS, TOPICS, topic_path

BEGINS_AT_S: Final = 15.0
HEALED_AT_S: Final = 40.0
_EACH_S: Final = 0.5
_MEANWHILE_S: Final = 0.02
"""Something is on its way by then, and not done."""

_TOPICS: Final = (
    ScheduledAction(6.0, "create topic", {"topic": "t1", "replicas": [[1, 2, 3], [2, 3, 1], [3, 1, 2]]}),
    ScheduledAction(6.5, "create topic", {"topic": "t2", "replicas": [[1], [2, 3], [3]]}),
)


def _kill_actions(*numbers: int, back_s: float, at_s: float = BEGINS_AT_S) -> list[ScheduledAction]:
    """Actions that kill these nodes and restart each after `back_s` seconds."""
    return [ScheduledAction(at_s, "kill", {"node": n, "back_s": back_s}) for n in numbers]


def _at_begin(what: str, facts: dict[str, object]) -> list[ScheduledAction]:
    """One action at the beginning of an operation, with all its decisions."""
    return [ScheduledAction(BEGINS_AT_S, what, facts)]


_OUT_OF_SYNC: Final = (
    ScheduledAction(7.0, "follower lags and catches up", {"node": 3, "seen_by": [2], "for_s": 60.0}),
    ScheduledAction(10.0, "kill", {"node": 2, "back_s": 20.0}),
)
"""t2-1 has nobody to lead it: node 3 is out of sync and node 2 is dead."""

_MALFORMED_ZNODES: Final = (
    "reassignment, no JSON",
    "election in an unknown topic",
    "ISR change of an unknown topic",
    "log directory event of a foreign broker",
    "deletion of an unknown topic",
    "a topic that nobody can read",
)
_ORDERLY_SHUTDOWN: Final = {"session_ends": "", "lingers_s": 0.0}

_LOWER_THE_PROTOCOL: Final = {"protocol": "2.6-IV0", "nodes": [2], "in_order": False, "back_s": 0.2}
OPERATIONS: Final[dict[str, Sequence[ScheduledAction]]] = {
    "start with election": _kill_actions(1, 2, 3, at_s=10.0, back_s=5.001),
    "broker joins": _kill_actions(3, at_s=10.0, back_s=5.001),
    "broker leaves": _kill_actions(3, back_s=60.0),
    "broker bounces": _kill_actions(3, back_s=0.05),
    "all bounce": _kill_actions(1, 2, 3, back_s=0.05),
    "controller dies": _kill_actions(1, back_s=60.0),
    "controller bounces": _kill_actions(1, back_s=0.05),
    "controller's session ends": _at_begin("expire", {"node": 1}),
    "/controller is deleted": _at_begin("delete /controller", {"node": 1, "frozen_s": 0.0}),
    "create topic": _at_begin("create topic", {"topic": "t3", "replicas": [[1, 2, 3], [3, 2], [2]]}),
    "create irregular topic": _at_begin(
        "create irregular topic", {"topic": "t3", "partitions": [[0, [77, 2]], [4, [3, 1]]]}
    ),
    "controlled shutdown of a broker": _at_begin(
        "controlled shutdown", {"node": 2, "back_s": 1.0, **_ORDERLY_SHUTDOWN}
    ),
    "controlled shutdown of the controller": _at_begin(
        "controlled shutdown", {"node": 1, "back_s": 1.0, **_ORDERLY_SHUTDOWN}
    ),
    "ISR shrinks and grows": _at_begin("follower lags and catches up", {"node": 3, "seen_by": [1, 2], "for_s": 3.0}),
    "ISR shrinks and grows, old leaders": _at_begin(
        "follower lags and catches up", {"node": 3, "seen_by": [1, 2], "for_s": 3.0}
    ),
    "log directory fails": _at_begin(
        "fail log dir", {"node": 2, "replicas": [["t1", 0], ["t1", 1], ["t2", 1]], "back_s": 4.0}
    ),
    "brokers shut down together": _at_begin("shut down together", {"nodes": [2, 3], "back_s": 1.0}),
    "reassign": _at_begin("reassign", {"targets": {"t2-0": [2], "t2-1": [1, 3], "t1-2": [3, 1]}}),
    "reassign by znode": _at_begin("reassign by znode", {"targets": {"t2-0": [3], "t2-1": [1]}}),
    "cancel a reassignment": [
        *_at_begin("reassign", {"targets": {"t2-0": [2, 3], "t2-1": [1]}}),
        ScheduledAction(BEGINS_AT_S + _MEANWHILE_S, "reassign", {"targets": {"t2-0": None, "t2-1": None}}),
    ],
    "override a reassignment": [
        *_at_begin("reassign", {"targets": {"t2-0": [2], "t2-1": [1]}}),
        ScheduledAction(BEGINS_AT_S + _MEANWHILE_S, "reassign", {"targets": {"t2-0": [3], "t2-1": [3, 1]}}),
    ],
    "delete a topic that is being reassigned": [
        *_at_begin("reassign", {"targets": {"t2-0": [2, 3], "t2-1": [1]}}),
        ScheduledAction(BEGINS_AT_S + _MEANWHILE_S, "delete topics", {"topics": ["t2"]}),
    ],
    "elect preferred": [
        *_kill_actions(1, at_s=7.0, back_s=4.0),
        *_at_begin("elect preferred", {"partitions": ["t1-0", "t1-1", "t1-2", "t2-1"], "by_znode": False}),
    ],
    "elect preferred by znode": [
        *_kill_actions(1, at_s=7.0, back_s=4.0),
        *_at_begin("elect preferred", {"partitions": ["t1-0", "t1-1", "t1-2", "t9-1"], "by_znode": True}),
    ],
    "unclean election": [*_OUT_OF_SYNC, *_at_begin("elect unclean", {"partitions": ["t2-1", "t1-0"]})],
    "unclean election by config": [*_OUT_OF_SYNC, *_at_begin("allow unclean", {"topic": "t2", "allowed": True})],
    "unclean election by default": [*_OUT_OF_SYNC, *_at_begin("allow unclean by default", {"allowed": True})],
    "configs change": [
        *_at_begin("change config", {"type": "topics", "entity": "t1", "value": 1}),
        ScheduledAction(BEGINS_AT_S + _MEANWHILE_S, "change config", {"type": "topics", "entity": "t1", "value": 2}),
        ScheduledAction(BEGINS_AT_S + 1, "change config", {"type": "brokers", "entity": "<default>", "value": 3}),
        ScheduledAction(BEGINS_AT_S + 2, "change config", {"type": "brokers", "entity": "2", "value": 4}),
    ],
    "preferred leaders are elected automatically": _kill_actions(1, at_s=11.0, back_s=4.0),
    "an override removes the leader": _at_begin(
        "remove leader by reassignment", {"partition": "t2-0", "others": [2, 3], "cancels": False}
    ),
    "a cancellation removes the leader": _at_begin(
        "remove leader by reassignment", {"partition": "t2-0", "others": [2, 3], "cancels": True}
    ),
    "the protocol is raised, and lowered for one broker": [
        *_at_begin("roll protocol", {"protocol": "2.8-IV1", "nodes": [3, 1, 2], "in_order": True, "back_s": 0.2}),
        ScheduledAction(BEGINS_AT_S + 4, "roll protocol", _LOWER_THE_PROTOCOL),
        ScheduledAction(BEGINS_AT_S + 18, "follower lags and catches up", {"node": 3, "seen_by": [1, 2], "for_s": 2.0}),
    ],
    "features, producer ids, list of reassignments": _at_begin("query controller", {"node": 1, "level": 1}),
    "a non-replica in the ISR": _at_begin(
        "send invalid AlterPartition", {"defect": "a non-replica in the ISR", "partition": "t2-1"}
    ),
    "malformed znodes": [
        ScheduledAction(BEGINS_AT_S + n * _MEANWHILE_S, "write malformed znode", {"what": what})
        for n, what in enumerate(_MALFORMED_ZNODES)
    ],
    "topics are deleted": _at_begin("delete topics", {"topics": ["t1", "t2"]}),
    "topic is deleted and created again": _at_begin("recreate topic", {"topic": "t1", "replicas": [[2, 3], [1, 2, 3]]}),
    "topic grows": _at_begin("grow topic", {"topic": "t1", "replicas": [[1, 2, 3], [3]], "deletes_first": False}),
    "topic grows and is deleted": _at_begin(
        "grow topic", {"topic": "t1", "replicas": [[1, 2, 3]], "deletes_first": True}
    ),
    "tokens expire": _at_begin("issue tokens", {"name": "token1"}),
    "foreign broker registers and leaves": _at_begin("foreign broker", {"first": "another listener", "for_s": 4.0}),
    "unreadable topic is repaired": _at_begin(
        "repair unreadable topic", {"topic": "t3", "replicas": [2], "deletes": False}
    ),
    "unreadable topic is deleted": _at_begin(
        "repair unreadable topic", {"topic": "t3", "replicas": [2], "deletes": True}
    ),
    "topic is recreated in ZooKeeper": _at_begin("recreate topic in ZooKeeper", {"topic": "t3", "node": 2}),
    "a feature is finalized, raised, lowered and deleted": [
        ScheduledAction(BEGINS_AT_S + n * _EACH_S, "update feature", {"level": level, "how": how})
        for n, (level, how) in enumerate(((1, 1), (2, 1), (5, 1), (4, 1), (3, 2), (0, 2)))
    ],
    "a broker lacks a feature": [
        *_at_begin("foreign broker", {"first": "the brokers' listener", "for_s": 1.2}),
        ScheduledAction(BEGINS_AT_S + _MEANWHILE_S, "update feature", {"level": 2, "how": 1}),
        ScheduledAction(BEGINS_AT_S + 2, "update feature", {"level": 2, "how": 1}),
        ScheduledAction(BEGINS_AT_S + 3, "foreign broker", {"first": "the brokers' listener", "for_s": 1.2}),
    ],
    "controllership is handed over": [
        *_at_begin("hand over", {"node": 2, "after_s": 0.0}),
        ScheduledAction(BEGINS_AT_S + 2, "hand over", {"node": 2, "after_s": 0.0}),
    ],
    "a controller runs out of memory": [
        *_at_begin("run out of memory", {"new": False}),
        ScheduledAction(
            BEGINS_AT_S + _MEANWHILE_S, "create topic", {"topic": "t3", "replicas": [[1, 2, 3], [3, 2], [2]]}
        ),
    ],
    "a new controller runs out of memory": _at_begin("run out of memory", {"new": True}),
    "topics are deleted without a node": _at_begin(
        "delete without a node", {"node": 3, "away_s": 9.0, "topics": ["t1", "t2"], "again": [[1, 2, 3], [3]]}
    ),
}

_SMALL_ASSIGNMENTS: Final = [[[n % 3 + 1, (n + 1) % 3 + 1]] for n in range(130)]
_CREATE_SMALL_TOPICS: Final = [
    ScheduledAction(8.0 + n / 100, "create topic", {"topic": f"s{n}", "replicas": r})
    for n, r in enumerate(_SMALL_ASSIGNMENTS)
]
_DELETE_SMALL_TOPICS: Final = [
    ScheduledAction(15.5 + n / 10, "delete topics", {"topics": [f"s{n}"]}) for n in range(60)
]
_RECREATE_SMALL_TOPICS: Final = [
    ScheduledAction(15.55 + n / 10, "create topic", {"topic": f"s{n}", "replicas": [[n % 2 + 2, 1], [2]]})
    for n in range(0, 60, 3)
]
"""What node 3 has no part of is gone at once, and made again before it has heard of that, some of it on node 3."""


def _add_and_cancel_replica(at_s: float) -> list[ScheduledAction]:
    """Actions that add a replica on node 3 and cancel that before it has joined."""
    return [
        ScheduledAction(at_s, "reassign", {"targets": {"t2-0": [3, 1]}}),
        ScheduledAction(at_s + _EACH_S, "reassign", {"targets": {"t2-0": None}}),
    ]


_REPEATED_REASSIGNMENTS: Final = [h for n in range(6) for h in _add_and_cancel_replica(16.0 + n)]
_DELETE_OTHER_TOPICS: Final = [
    ScheduledAction(15.5 + n / 20, "delete topics", {"topics": [f"e{n}"]}) for n in range(90)
]
_MEANWHILE: Final = [
    *(ScheduledAction(15.5 + n / 2, "create topic", {"topic": f"n{n}", "replicas": [[3, 1]]}) for n in range(8)),
    *(
        ScheduledAction(15.7 + n / 2, "foreign broker", {"first": "the brokers' listener", "for_s": 0.2})
        for n in range(8)
    ),
]
_T1_STATES: Final = [f"{TOPICS}/t1/partitions/{n}/state" for n in range(3)]


def _znodes_of(topic: str) -> list[str]:
    """The znodes of a topic with one partition, children first."""
    return [topic_path(topic) + below for below in ("/partitions/0/state", "/partitions/0", "/partitions", "")]


OPERATIONS_WITHOUT_FAULTS: Final[dict[str, Sequence[ScheduledAction]]] = {
    "thousands of partitions are created, survive a failover and are deleted": [
        ScheduledAction(8.0, "create topic", {"topic": "large", "replicas": [[2, 3]] * 2_600}),
        *_CREATE_SMALL_TOPICS,
        *_kill_actions(1, back_s=3.0),
        *_kill_actions(3, at_s=20.0, back_s=2.0),
        ScheduledAction(25.0, "delete topics", {"topics": ["large"]}),
    ],
    "unsupported feature": _at_begin("finalize feature", {"level": 2}),
    "reassignments to invalid replicas": _at_begin(
        "reassign", {"targets": {"t2-0": [], "t2-1": [1, 1], "t1-0": [-1, 2], "t1-1": None}}
    ),
    "topic is recreated in ZooKeeper while the controller is paused": [
        *_at_begin("recreate topic in ZooKeeper", {"topic": "t3", "node": 2}),
        ScheduledAction(BEGINS_AT_S + 0.4, "pause", {"node": 1, "for_s": 1.5}),
    ],
    "requests to the controller while a deletion waits": [
        *_kill_actions(3, at_s=10.0, back_s=20.0),
        ScheduledAction(14.9, "delete topics", {"topics": ["t1", "t2"]}),
        *_at_begin("query controller", {"node": 1, "level": 1}),
    ],
    "partly restored ZooKeeper tree": _at_begin("delete znodes", {"paths": [LOG_DIR_EVENTS, CONTROLLER]}),
    "znodes of unreadable topics and of topics pending deletion are deleted": [
        ScheduledAction(9.0, "write malformed znode", {"what": "a topic that nobody can read"}),
        ScheduledAction(9.0, "create topic", {"topic": "t3", "replicas": [[3]]}),
        *_kill_actions(3, at_s=10.0, back_s=20.0),
        ScheduledAction(14.5, "delete topics", {"topics": ["t3"]}),
        *_at_begin("delete znodes", {"paths": [*_znodes_of("t3"), topic_path("scrap")]}),
    ],
    "a topic pending deletion is recreated in ZooKeeper while the controller is paused": [
        ScheduledAction(9.0, "create topic", {"topic": "t3", "replicas": [[3]]}),
        *_kill_actions(3, at_s=10.0, back_s=20.0),
        ScheduledAction(14.0, "delete topics", {"topics": ["t3"]}),
        *_at_begin("pause", {"node": 1, "for_s": 1.5}),
        ScheduledAction(BEGINS_AT_S + _MEANWHILE_S, "delete znodes", {"paths": _znodes_of("t3")}),
        ScheduledAction(BEGINS_AT_S + _EACH_S, "create topic", {"topic": "t3", "replicas": [[2]]}),
    ],
    "pending deletions cannot be written for a while": [
        ScheduledAction(9.0, "write malformed znode", {"what": "pending deletions, no JSON"}),
        *_at_begin("forbid by ACL", {"what": "to change", "paths": [PENDING_DELETIONS, DELETE_TOPICS], "for_s": 6.0}),
        *_at_begin("reassign", {"targets": {"t2-0": [2], "t2-1": [1, 3]}}),
        *_at_begin("delete topics", {"topics": ["t1"]}),
    ],
    "a write fails while thousands of partitions are created": [
        *_at_begin("at step", {"kind": "write", "number": 6, "what": "first operation refused"}),
        *_at_begin("create topic", {"topic": "large", "replicas": [[2, 3]] * 2_600}),
    ],
    "a partition without replicas": [
        *_at_begin("create irregular topic", {"topic": "t3", "partitions": [[0, []], [1, [2]]]}),
        ScheduledAction(BEGINS_AT_S + 1, "elect preferred", {"partitions": ["t3-0", "t1-0"], "by_znode": False}),
    ],
    "partition states cannot be read for a while": [
        *_at_begin("forbid by ACL", {"what": "to read", "paths": _T1_STATES, "for_s": 4.0}),
        *_at_begin("follower lags and catches up", {"node": 3, "seen_by": [1, 2], "for_s": 2.0}),
        *_at_begin("reassign", {"targets": {"t1-0": [1, 2], "t2-0": [2]}}),
    ],
    "queues of every kind for a slow broker": [
        *(
            ScheduledAction(8.0 + n / 10, "create topic", {"topic": f"l{n}", "replicas": [[2, 3]] * 1_300})
            for n in range(2)
        ),
        *(ScheduledAction(9.0 + n / 100, "create topic", {"topic": f"e{n}", "replicas": [[1, 2]]}) for n in range(90)),
        *_at_begin("slow control requests", {"node": 3, "takes_s": 6.0, "for_s": 15.0}),
        ScheduledAction(BEGINS_AT_S, "create topic", {"topic": "n", "replicas": [[3, 1]]}),
        ScheduledAction(15.2, "delete topics", {"topics": ["l0", "l1"]}),
        *sorted(_DELETE_OTHER_TOPICS + _MEANWHILE, key=lambda h: h.at_s),
    ],
    "a slow broker and sixty deletions": [
        *_CREATE_SMALL_TOPICS,
        *_at_begin("slow control requests", {"node": 3, "takes_s": 1.0, "for_s": 12.0}),
        *sorted(_DELETE_SMALL_TOPICS + _RECREATE_SMALL_TOPICS + _REPEATED_REASSIGNMENTS, key=lambda h: h.at_s),
        *_kill_actions(1, at_s=36.0, back_s=2.0),
    ],
}
"""What is not broken at each of its steps: it is about thousands of partitions or a long queue, or has no steps."""
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "ISR shrinks and grows, old leaders": {"protocol": "2.6-IV0"},
    "tokens expire": {"token_check_s": 2},
    "a feature is finalized, raised, lowered and deleted": {"supports_features": True},
    "a broker lacks a feature": {"supports_features": True},
    "partition states cannot be read for a while": {"protocol": "2.6-IV0"},
}
"""Where they are not plain: leaders before 2.7 write their ISRs themselves; tokens are looked after only if enabled."""


def script_of(name: str, *faults: ScheduledAction) -> Script:
    """The script of one operation, with these faults set just before it begins."""
    actions = OPERATIONS.get(name) or OPERATIONS_WITHOUT_FAULTS[name]
    before = [h for h in actions if h.at_s < BEGINS_AT_S]
    begun = [h for h in actions if h.at_s >= BEGINS_AT_S]
    plain = Options.plain()
    options = replace(plain, **SETTINGS.get(name, {}))
    return Script(options, [*_TOPICS, *before, *faults, *begun], HEALED_AT_S)
