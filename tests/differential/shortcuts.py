"""Removes from two plays, before they are compared, the steps that klamm omits on purpose."""

import re
from typing import Any

from tests.differential.normalize import VERSIONS
from tests.differential.transcript import Steps

from klamm.zk.znodes import REASSIGN_PARTITIONS

_REQUEST = re.compile(r"/admin/delete_topics/([^/]+)$")
_RETURN = re.compile(r"(?:start|bounce) (\d+)")
_STATE = re.compile(r"/brokers/topics/([^/]+)/partitions/\d+/state$")
_TOPIC = re.compile(r"/brokers/topics/([^/]+)$")
_PLACES = ("topic", "state", "partitions", "/config/topics", "/admin/delete_topics")
_OWN = "/klamm/"
_PENDING_DELETION = "StopReplica leader epoch -2 delete"
_GONE = "UpdateMetadata -2 "
_IDLE = ("StopReplica leader epoch -2, ", "LeaderAndIsr ")
"""Told about a topic that is being deleted, to no effect."""


def without_shortcuts(*plays: Steps) -> list[Steps]:
    """The plays of one script without what klamm omits on purpose, such as states during a topic's deletion.

    Where a topic is ever deleted or moved, the kinds of requests in a step are left out, too.
    """
    leaves_kinds_out = any(_has_shortcuts(step) for steps in plays for step in steps)
    return [_without_shortcuts(steps, leaves_kinds_out) for steps in plays]


def _without_shortcuts(steps: Steps, leaves_kinds_out: bool) -> Steps:
    """The steps without what klamm omits on purpose."""
    queued: set[str] = set()
    sent_gone: set[tuple[str, str]] = set()
    returned: set[str] = set()
    moving: set[str] = set()
    listed: str | None = None
    left: Steps = []
    for step in steps:
        step = _without_own_znodes(step)
        if (back := _RETURN.match(step.get("did", ""))) and queued:
            returned.add(back[1])
        tree, writes = step.get("tree", {}), step.get("writes", {})
        requests = {found[1] for path in (*tree, *writes) if (found := _REQUEST.match(path))}
        queued |= requests
        moving |= {found[1] for path, texts in writes.items() if (found := _TOPIC.match(path)) and _moves(texts)}
        listed, step = _without_same_list(_without(step, queued, sent_gone, returned, moving), listed)
        if leaves_kinds_out:
            for received in step.get("requests", {}).values():
                received.pop(VERSIONS, None)
        left.append(step)
        queued -= {topic for topic in requests if not tree.get(f"/admin/delete_topics/{topic}")}
        returned = returned if queued else set()
        sent_gone = {(broker, subject) for broker, subject in sent_gone if _topic(subject) in queued}
    return left


def _without(
    step: dict[str, Any], queued: set[str], sent_gone: set[tuple[str, str]], returned: set[str], moving: set[str]
) -> dict[str, Any]:
    """One step without what klamm omits on purpose."""
    left = dict(step)
    if "tree" in step:
        left["tree"] = {p: text for p, text in step["tree"].items() if text is None or not _is_state(p, queued)}
    if "writes" in step:
        writes = {p: _not_set(texts) if _is_state(p, queued) else texts for p, texts in step["writes"].items()}
        left["writes"] = {path: texts for path, texts in writes.items() if texts}
    if "order" in step:
        orders = {t: _without_states(kinds) if t in queued else kinds for t, kinds in step["order"].items()}
        left["order"] = {t: kinds for t, kinds in orders.items() if len(kinds) > 1 and any(map(_is_of_topic, kinds))}
    if "requests" in step:
        left["requests"] = {}
        for broker, received in step["requests"].items():
            texts = {
                s: _deletion_requests(broker, s, t, sent_gone, returned)
                if _topic(s) in queued
                else _without_pending_deletions(t)
                for s, t in received.items()
            }
            left["requests"][broker] = {s: _once(t) if _topic(s) in moving else t for s, t in texts.items() if t}
    return left


def _without_own_znodes(step: dict[str, Any]) -> dict[str, Any]:
    """The step without znodes that only klamm has."""
    left = dict(step)
    for part in ("tree", "writes"):
        if part in step:
            left[part] = {path: each for path, each in step[part].items() if not f"{path}/".startswith(_OWN)}
    if "order" in step:
        orders = {t: _once([k for k in kinds if f" {_OWN}" not in f"{k}/"]) for t, kinds in step["order"].items()}
        left["order"] = {topic: kinds for topic, kinds in orders.items() if len(kinds) > 1}
    return left


def _without_same_list(step: dict[str, Any], listed: str | None) -> tuple[str | None, dict[str, Any]]:
    """The list as it is now, and the step without its versions, and without writing what was there."""
    left = dict(step)
    tree, writes = dict(step.get("tree", {})), dict(step.get("writes", {}))
    written = writes.pop(REASSIGN_PARTITIONS, [])
    changed = [t for t, before in zip(written, [f"set {listed}", *written], strict=False) if t != before]
    if REASSIGN_PARTITIONS in tree:
        now = tree.pop(REASSIGN_PARTITIONS)
        text = None if now is None else now.rpartition(" v")[0]
        if text != listed:
            tree[REASSIGN_PARTITIONS] = listed = text
    if changed:
        writes[REASSIGN_PARTITIONS] = changed
    if len(changed) < len(written) and "order" in step:
        sets = sum(text.startswith("set ") for text in changed)
        orders = {t: _first_only(kinds, f"set {REASSIGN_PARTITIONS}", sets) for t, kinds in step["order"].items()}
        left["order"] = {topic: kinds for topic, kinds in orders.items() if len(kinds) > 1}
    left |= {"tree": tree, "writes": writes}
    return listed, left


def _first_only(kinds: list[str], repeated: str, count: int) -> list[str]:
    """Keep the first `count` repetitions of a kind of write."""
    left: list[str] = []
    for kind in kinds:
        if kind == repeated:
            count -= 1
            if count < 0:
                continue
        if left[-1:] != [kind]:
            left.append(kind)
    return left


def _has_shortcuts(step: dict[str, Any]) -> bool:
    """Whether a topic is deleted or reassigned in this step."""
    is_moving = any(_TOPIC.match(path) and _moves(texts) for path, texts in step.get("writes", {}).items())
    return is_moving or any(_REQUEST.match(path) for path in step.get("tree", {}))


def _without_pending_deletions(texts: list[str]) -> list[str]:
    """The texts without the end of pending deletions."""
    return [text for text in texts if not text.startswith(_PENDING_DELETION)]


def _moves(texts: list[str]) -> bool:
    """Whether one of these texts is about a reassignment."""
    return any('"adding_replicas":{"' in text or '"removing_replicas":{"' in text for text in texts)


def _is_of_topic(kind: str) -> bool:
    """Whether the znode kind belongs to a topic."""
    return kind.rpartition(" ")[2] in _PLACES


def _once(texts: list[str]) -> list[str]:
    """The texts without repetitions."""
    return [text for text, before in zip(texts, [None, *texts], strict=False) if text != before]


def _is_state(path: str, topics: set[str]) -> bool:
    """Whether the path is a partition state of one of these topics."""
    found = _STATE.match(path)
    return found is not None and found[1] in topics


def _topic(subject: str) -> str:
    """The topic of a subject such as `a-0`."""
    return subject.rpartition("-")[0]


def _not_set(texts: list[str]) -> list[str]:
    """The texts that are not about a znode being set."""
    return [text for text in texts if not text.startswith("set ")]


def _without_states(kinds: list[str]) -> list[str]:
    """The znode kinds without states; everything below a topic counts as one place, as its order may vary."""
    left: list[str] = []
    for kind in kinds:
        place = "delete partitions" if kind == "delete state" else kind
        if place != "set state" and left[-1:] != [place]:
            left.append(place)
    return left


def _deletion_requests(
    broker: str, subject: str, texts: list[str], sent_gone: set[tuple[str, str]], returned: set[str]
) -> list[str]:
    """The StopReplica requests of a deletion, each replica once, whatever its ISR was."""
    left = []
    for text in texts:
        if not text.startswith(_GONE):
            left += [text] if not text.startswith(_IDLE) else []
        elif (broker, subject) not in sent_gone and broker not in returned:
            sent_gone.add((broker, subject))
            left.append(_GONE + text[text.index(" of ") :].partition(" decided")[0])
    return left
