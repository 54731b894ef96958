"""Control requests are sent in the order in which they were queued, also when they are merged."""

from collections import deque

import pytest

from klamm.model.ids import BrokerId
from klamm.model.leader_and_isr import EPOCH_DURING_DELETE
from klamm.sim.history.history import History
from klamm.sim.history.requests import Queued
from klamm.sim.history.trace import RequestSent
from klamm.sim.invariants.control_requests import requests_keep_their_order
from klamm.wire.messages import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)


def queued(text: str) -> Queued:
    """A queued request: `L3` is LeaderAndIsr with leader epoch 3, `S3` StopReplica, `D3` StopReplica with delete."""
    epoch = int(text[1:])
    return Queued(False, epoch, epoch) if text[0] == "L" else Queued(True, epoch, int(text[0] == "D"))


def sent(order: Queued) -> RequestSent:
    """The request as the observer reports it when it is sent."""
    message: LeaderAndIsrRequest | StopReplicaRequest
    if order.is_stop:
        stop = StopReplicaPartitionState(0, order.leader_epoch, bool(order.partition_epoch))
        message = StopReplicaRequest(controller_epoch=7, broker_epoch=102)
        message.topic_states = [StopReplicaTopicState("a", [stop])]
    else:
        state = LeaderAndIsrPartitionState(
            "", 0, 7, BrokerId(1), order.leader_epoch, (BrokerId(1),), order.partition_epoch, (BrokerId(1),), (), ()
        )
        message = LeaderAndIsrRequest(controller_epoch=7, broker_epoch=102)
        message.topic_states = [LeaderAndIsrTopicState("a", partition_states=[state])]
    return RequestSent(BrokerId(1), 1, BrokerId(2), message, False, 0)


def wrong(waiting: str, orders: str) -> str | None:
    """The first violation when these queued requests are sent as `orders`."""
    history = History()
    history.requests.waiting[7, BrokerId(2), 102, "a", 0] = deque(map(queued, waiting.split()))
    for order in orders.split():
        event = sent(queued(order))
        if (found := requests_keep_their_order(history, event)) is not None:
            return found
        history.absorb(event)
    return None


ALLOWED = {
    "all of them": ("L1 S1 D1 L2 S2 D2", "L1 S1 D1 L2 S2 D2"),
    "what was outdated is left out": ("L1 L2 L3", "L3"),
    "a deletion ends all before it": ("L1 S1 D1 L2 S2 D2", "D2"),
    "the newest comes behind one deletion": ("D0 L1 S1 D1 L2 L3", "D1 L3"),
    "a stop of what was deleted before deletes it": ("D1 L2 S2 L3", "D2 L3"),
    "deletions that look alike are one": ("D-2 L1 D-2 L2 D-2 L3", "D-2 L3"),
    "a deletion whatever the leader epoch stays one": ("D-2 L1 D1 L2", "D-2 L2"),
    "the second of two stops goes without the first": ("S1 L1 S2 L2", "S2 L2"),
}
FORBIDDEN = {
    "it overtakes a stop": ("S1 L2", "L2"),
    "it overtakes a deletion": ("L1 D1 L2", "L2"),
    "a deletion becomes a stop": ("D1 L1 S2 L2", "S2"),
    "a stop does for no deletion": ("S1 L1 D1 L2", "S1 L2"),
    "the deletion of what came since is left out": ("D1 L2 D2 L3", "D1 L2 L3"),
    "a deletion comes late": ("D1 L2 D2 L3", "D1 L3 D2"),
    "nobody asked for it": ("L1", "L2"),
    "nobody asked to delete it": ("L1 S1", "D1"),
}


@pytest.mark.parametrize(("waiting", "orders"), ALLOWED.values(), ids=ALLOWED)
def test_merged_control_requests_sent_in_queue_order_are_no_violation(waiting: str, orders: str) -> None:
    assert wrong(waiting, orders) is None


@pytest.mark.parametrize(("waiting", "orders"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_a_control_request_sent_out_of_order_is_a_violation(waiting: str, orders: str) -> None:
    assert wrong(waiting, orders) is not None


def test_the_request_order_invariant_accepts_a_stop_replica_without_leader_epoch_for_a_queued_deletion() -> None:
    assert queued(f"D{EPOCH_DURING_DELETE}") == Queued(True, EPOCH_DURING_DELETE, 1)
