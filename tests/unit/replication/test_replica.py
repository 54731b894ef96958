from klamm.replication.replica import NEVER, RemoteReplica


def fetched(*fetches: tuple[int, int, float]) -> RemoteReplica:
    replica = RemoteReplica(2)
    for offset, leader_end, now_ms in fetches:
        replica.fetched(offset, 0, leader_end, now_ms)
    return replica


def test_a_fetch_at_the_leaders_end_is_level_now() -> None:
    assert fetched((5, 5, 1000)).last_caught_up_ms == 1000


def test_a_fetch_at_what_was_the_end_was_level_then() -> None:
    replica = fetched((0, 5, 1000), (5, 9, 2000))

    assert replica.last_caught_up_ms == 1000


def test_a_fetch_below_that_changes_nothing() -> None:
    assert fetched((0, 5, 1000), (4, 9, 2000)).last_caught_up_ms == NEVER


def test_the_time_never_goes_back() -> None:
    assert fetched((5, 5, 1000), (5, 9, 2000), (5, 12, 3000)).last_caught_up_ms == 1000


def test_a_fetch_that_names_no_partition_was_level_when_it_was_at_the_end() -> None:
    replica = fetched((5, 5, 1000))

    replica.was_level(5, 4000)
    assert (replica.last_caught_up_ms, replica.last_fetch_ms) == (4000, 4000)

    replica.was_level(6, 9000)  # the leader had moved on by then
    assert replica.last_caught_up_ms == 4000

    replica.was_level(5, 3000)  # of an older session
    assert replica.last_fetch_ms == 4000


def test_a_new_leader_knows_nothing_but_gives_members_time() -> None:
    member, outsider = fetched((5, 5, 1000)), fetched((5, 5, 1000))

    member.reset(in_isr=True, stays_known=False, epoch_start_offset=7, now_ms=9000)
    outsider.reset(in_isr=False, stays_known=False, epoch_start_offset=7, now_ms=9000)

    assert (member.log_end_offset, member.last_fetch_leader_end, member.last_fetch_ms) == (-1, -1, NEVER)
    assert member.last_caught_up_ms == 9000
    assert outsider.last_caught_up_ms == NEVER


def test_a_leader_that_stays_keeps_the_ends() -> None:
    replica = fetched((5, 5, 1000))

    replica.reset(in_isr=True, stays_known=True, epoch_start_offset=7, now_ms=9000)

    assert (replica.log_end_offset, replica.last_fetch_leader_end) == (5, 7)
    assert (replica.last_fetch_ms, replica.last_caught_up_ms) == (9000, 9000)


def test_a_leader_that_stays_does_not_let_an_outsider_in_before_it_fetches() -> None:
    replica = fetched((5, 5, 1000))

    replica.reset(in_isr=False, stays_known=True, epoch_start_offset=7, now_ms=9000)

    assert (replica.last_fetch_ms, replica.last_caught_up_ms) == (NEVER, NEVER)
