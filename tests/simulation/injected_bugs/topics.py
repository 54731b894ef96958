"""Injected bugs of topics and their deletion."""

from typing import Any

import pytest
from tests.simulation.injected_bugs.mutant import Patch, nothing

from klamm.controller.context import ControllerContext
from klamm.controller.handlers import (
    brokers,
    topic_deletion,
    topics,
)
from klamm.controller.states import ReplicaState
from klamm.controller.term_context import TermContext
from klamm.zk import topic_assignments, znodes


def partitions_added_during_deletion(patch: Patch) -> None:
    """Partitions that are added to a topic being deleted come online."""

    async def grow(term: TermContext, topic: Any, added: Any) -> None:
        """The patched function, with the injected bug."""
        znode = (await term.store.read_topics([topic.name]))[0][topic.name]
        made = [term.context.add_partition(topic, n, znode.partitions[n]) for n in added]
        await topics.on_new_partitions(term, made)

    patch.setattr(topics, "_reject_new_partitions", grow)


def deletions_do_not_wait(patch: Patch) -> None:
    """A deletion completes at once, without waiting for its replicas."""

    def at_once(context: Any, topic: str, *facts: Any, **more: Any) -> Any:
        """The patched function, with the injected bug."""
        from klamm.controller.decisions.topic_deletion import DeletionDecision, Step

        begun = topic in context.topics_with_deletion_started
        return DeletionDecision(Step.COMPLETE if begun else Step.BEGIN)

    patch.setattr(topic_deletion, "decide_deletion_step", at_once)


def deletions_do_not_resume(patch: Patch) -> None:
    """Deletions that waited for a dead broker do not resume when it returns."""
    patch.setattr(brokers, "resume_deletions", nothing)


def leaderless_replicas_stay_online(patch: Patch) -> None:
    """A replica without leadership information cannot go offline, so that its topic is never deleted."""
    move = ControllerContext.move_replicas

    def only_with_leadership(self: Any, broker: Any, moved: Any, target: Any) -> Any:
        """The patched function, with the injected bug."""
        listed = list(moved)
        if target is ReplicaState.OFFLINE:
            allowed = [p for p in listed if p.leadership is not None]
            return [*move(self, broker, allowed, target), *(p for p in listed if p.leadership is None)]
        return move(self, broker, listed, target)

    patch.setattr(ControllerContext, "move_replicas", only_with_leadership)


def ids_lost_when_rewritten(patch: Patch) -> None:
    """A rewritten topic znode loses its topic id."""
    change = topic_assignments.AssignmentStore._try_change

    async def without_ids(store: Any, changes: Any, ids: Any, failed: Any, is_first: bool) -> Any:
        """The patched function, with the injected bug."""
        encode = znodes.encode_topic
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(znodes, "encode_topic", lambda topic_id, ps: encode(None, ps))
            return await change(store, changes, ids, failed, is_first)

    patch.setattr(topic_assignments.AssignmentStore, "_try_change", without_ids)
