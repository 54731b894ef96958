from klamm.model.ids import BrokerId
from klamm.replication.replica import NEVER, RemoteReplica


def fetched(*fetches: tuple[int, int, float]) -> RemoteReplica:
    """A replica after these fetches: (offset, leader end, time)."""
    replica = RemoteReplica(BrokerId(2))
    for offset, leader_end, now_ms in fetches:
        replica.record_fetch(offset, 0, leader_end, now_ms)
    return replica


def test_a_follower_fetch_at_the_leaders_log_end_counts_as_caught_up_now() -> None:
    assert fetched((5, 5, 1000)).last_caught_up_ms == 1000


def test_a_follower_fetch_at_the_previous_log_end_counts_as_caught_up_at_the_previous_fetch() -> None:
    replica = fetched((0, 5, 1000), (5, 9, 2000))

    assert replica.last_caught_up_ms == 1000


def test_a_follower_fetch_below_the_previous_log_end_keeps_the_caught_up_time() -> None:
    assert fetched((0, 5, 1000), (4, 9, 2000)).last_caught_up_ms == NEVER


def test_the_caught_up_time_of_a_replica_never_decreases() -> None:
    assert fetched((5, 5, 1000), (5, 9, 2000), (5, 12, 3000)).last_caught_up_ms == 1000


def test_an_incremental_fetch_without_the_partition_counts_as_caught_up_at_its_position() -> None:
    replica = fetched((5, 5, 1000))

    replica.record_implicit_fetch(5, 4000)
    assert (replica.last_caught_up_ms, replica.last_fetch_ms) == (4000, 4000)

    replica.record_implicit_fetch(6, 9000)  # the leader had moved on by then
    assert replica.last_caught_up_ms == 4000

    replica.record_implicit_fetch(5, 3000)  # of an older session
    assert replica.last_fetch_ms == 4000


def test_a_new_leader_resets_follower_log_ends_and_treats_isr_members_as_caught_up() -> None:
    member, outsider = fetched((5, 5, 1000)), fetched((5, 5, 1000))

    member.reset(in_isr=True, was_leader=False, epoch_start_offset=7, now_ms=9000)
    outsider.reset(in_isr=False, was_leader=False, epoch_start_offset=7, now_ms=9000)

    assert (member.log_end_offset, member.last_fetch_leader_end, member.last_fetch_ms) == (-1, -1, NEVER)
    assert member.last_caught_up_ms == 9000
    assert outsider.last_caught_up_ms == NEVER


def test_a_reelected_leader_keeps_the_log_ends_of_its_followers() -> None:
    replica = fetched((5, 5, 1000))

    replica.reset(in_isr=True, was_leader=True, epoch_start_offset=7, now_ms=9000)

    assert (replica.log_end_offset, replica.last_fetch_leader_end) == (5, 7)
    assert (replica.last_fetch_ms, replica.last_caught_up_ms) == (9000, 9000)


def test_a_reelected_leader_does_not_treat_a_replica_outside_the_isr_as_caught_up() -> None:
    replica = fetched((5, 5, 1000))

    replica.reset(in_isr=False, was_leader=True, epoch_start_offset=7, now_ms=9000)

    assert (replica.last_fetch_ms, replica.last_caught_up_ms) == (NEVER, NEVER)
