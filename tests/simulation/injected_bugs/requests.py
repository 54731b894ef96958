"""Fields of control requests: wrong, swapped, left out or stale."""

from collections.abc import Callable
from typing import Any

from tests.simulation.injected_bugs.mutant import Patch

from klamm.controller import control_requests, request_batch, sent_states
from klamm.model.leader_and_isr import EPOCH_DURING_DELETE, LEADER_DURING_DELETE
from klamm.model.topic_ids import ZERO_ID


def stops_delete(patch: Patch) -> None:
    """Every StopReplica deletes."""
    add = request_batch.RequestBatch.add_stop_replica

    def deleting(self: Any, brokers: Any, partition: Any, delete: bool) -> None:
        add(self, brokers, partition, True)

    patch.setattr(request_batch.RequestBatch, "add_stop_replica", deleting)


def _in_leader_and_isr(patch: Patch, change: Callable[[Any], None]) -> None:
    """Change the states of LeaderAndIsr as they are made."""
    make = sent_states.leader_and_isr_state

    def changed(partition: Any, is_new: bool, with_recovery: bool, brief: bool) -> Any:
        state = make(partition, is_new, with_recovery, brief)
        change(state)
        return state

    patch.setattr(request_batch, "leader_and_isr_state", changed)


def _in_metadata(patch: Patch, change: Callable[[Any], None]) -> None:
    """Change the states of UpdateMetadata as they are made."""
    make = sent_states.metadata_state

    def changed(context: Any, partition: Any, brief: bool) -> Any:
        state = make(context, partition, brief)
        change(state)
        return state

    patch.setattr(request_batch, "metadata_state", changed)


def _set(**fields: Any) -> Callable[[Any], None]:
    """Overwrite these fields."""

    def change(state: Any) -> None:
        for name, value in fields.items():
            setattr(state, name, value)

    return change


def always_new(patch: Patch) -> None:
    _in_leader_and_isr(patch, _set(is_new=True))


def never_new(patch: Patch) -> None:
    _in_leader_and_isr(patch, _set(is_new=False))


def adding_left_out(patch: Patch) -> None:
    _in_leader_and_isr(patch, _set(adding_replicas=()))


def removing_left_out(patch: Patch) -> None:
    _in_leader_and_isr(patch, _set(removing_replicas=()))


def recovery_left_out(patch: Patch) -> None:
    _in_leader_and_isr(patch, _set(leader_recovery_state=0))


def deciding_epoch_left_out(patch: Patch) -> None:
    _in_leader_and_isr(patch, _set(controller_epoch=0))


def replicas_in_the_order_of_ids(patch: Patch) -> None:
    def order(state: Any) -> None:
        state.replicas = tuple(sorted(state.replicas))

    _in_leader_and_isr(patch, order)


def metadata_lists_the_isr_as_replicas(patch: Patch) -> None:
    def swap(state: Any) -> None:
        state.replicas = state.isr or state.replicas

    _in_metadata(patch, swap)


def metadata_is_one_version_behind(patch: Patch) -> None:
    def age(state: Any) -> None:
        state.zk_version = max(0, state.zk_version - 1)

    _in_metadata(patch, age)


def no_offline_replicas_listed(patch: Patch) -> None:
    _in_metadata(patch, _set(offline_replicas=()))


def stopping_brokers_listed_online(patch: Patch) -> None:
    """Replicas of brokers that shut down are listed as online."""
    make = sent_states.metadata_state

    def changed(context: Any, partition: Any, brief: bool) -> Any:
        state = make(context, partition, brief)
        state.offline_replicas = tuple(b for b in state.offline_replicas if b not in context.leaving)
        return state

    patch.setattr(request_batch, "metadata_state", changed)


def topics_being_deleted_not_marked(patch: Patch) -> None:
    """Metadata of a topic that is deleted does not say that it goes."""
    make = sent_states.metadata_state

    def alive(context: Any, partition: Any, brief: bool) -> Any:
        state = make(context, partition, brief)
        if partition.leadership is not None and state.leader == LEADER_DURING_DELETE:
            now = partition.leadership
            state.leader, state.leader_epoch, state.zk_version = now.leader, now.leader_epoch, now.partition_epoch
        return state

    patch.setattr(request_batch, "metadata_state", alive)


def leaders_unlisted(patch: Patch) -> None:
    patch.setattr(control_requests.RequestBuilder, "_live_leaders", lambda self, item: [])


def leaders_at_a_wrong_port(patch: Patch) -> None:
    list_leaders = control_requests.RequestBuilder._live_leaders

    def elsewhere(self: Any, item: Any) -> Any:
        listed = list_leaders(self, item)
        for leader in listed:
            leader.port += 1
        return listed

    patch.setattr(control_requests.RequestBuilder, "_live_leaders", elsewhere)


def brokers_at_a_wrong_host(patch: Patch) -> None:
    list_broker = control_requests._live_broker

    def elsewhere(broker: Any, version: int) -> Any:
        listed = list_broker(broker, version)
        for endpoint in listed.endpoints:
            endpoint.host = "nowhere"
        listed.v0_host = "nowhere"
        return listed

    patch.setattr(control_requests, "_live_broker", elsewhere)


def ids_left_out(patch: Patch) -> None:
    patch.setattr(control_requests.RequestBuilder, "_topic_id", lambda self, topic: ZERO_ID)


def stops_in_a_later_epoch(patch: Patch) -> None:
    """A stop carries the leader epoch that the next election will have."""
    epoch_of = request_batch.RequestBatch._stop_epoch

    def later(self: Any, partition: Any) -> int:
        epoch = int(epoch_of(self, partition))
        return epoch + 1 if epoch >= 0 else epoch

    patch.setattr(request_batch.RequestBatch, "_stop_epoch", later)


def stops_above_all_epochs(patch: Patch) -> None:
    patch.setattr(request_batch.RequestBatch, "_stop_epoch", lambda self, partition: EPOCH_DURING_DELETE)


def epochs_of_earlier_runs(patch: Patch) -> None:
    """Control requests carry an older broker epoch."""
    build = control_requests.RequestBuilder._leader_and_isr

    def older(self: Any, item: Any, broker: Any) -> Any:
        request = build(self, item, broker)
        request.broker_epoch -= 1
        return request

    patch.setattr(control_requests.RequestBuilder, "_leader_and_isr", older)
