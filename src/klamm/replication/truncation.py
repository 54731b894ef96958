"""Where a follower truncates a log that diverged from the leader's. Source: AbstractFetcherThread.scala, KIP-279."""

from klamm.log.epochs import EpochEnd, LeaderEpochs


def truncation_offset(leader: EpochEnd, own: EpochEnd, own_end: int, fetch_offset: int) -> int:
    """The offset to which a follower truncates, after the leader said where its epoch nearest to our last one ends.

    `own` is where the leader's epoch ends in our log (our largest epoch not above it). Where we never had that epoch,
    everything after the end of our smaller one may differ: truncate there, and the next fetch compares again.
    """
    if leader.end_offset < 0:
        return fetch_offset
    if leader.epoch < 0 or own.epoch < 0:
        return min(leader.end_offset, own_end)
    if own.epoch != leader.epoch:
        return min(own.end_offset, own_end)
    return min(own.end_offset, leader.end_offset, own_end)


def common_end(
    source: LeaderEpochs, source_end: int, copy: LeaderEpochs, copy_end: int, *, without_epochs: int
) -> int | None:
    """The offset up to which two logs have the same records; None where they share no leader epoch.

    Records of one epoch come from one leader: two logs that have the epoch differ only in where it ends. Where one of
    the logs has no epochs, the answer is `without_epochs`, at most the end of both.
    """
    if not source.entries or not copy.entries:
        return min(without_epochs, source_end, copy_end)
    for epoch, _ in reversed(copy.entries):
        in_source = source.end_offset_for(epoch, source_end)
        if in_source.epoch == epoch:
            return min(in_source.end_offset, copy.end_offset_for(epoch, copy_end).end_offset)
    return None
