"""Where a follower truncates a log that diverged from the leader's. Source: AbstractFetcherThread.scala, KIP-279."""

from klamm.log.epochs import EpochEnd


def truncation_offset(leader: EpochEnd, own: EpochEnd, own_end: int, fetch_offset: int) -> int:
    """The offset to truncate to, after the leader said where its epoch nearest to our last one ends.

    `own` is where the *leader's* epoch ends in our log (our largest epoch not above it). Where we never had that
    epoch, everything from the end of our smaller one on is foreign: cut there, and the next fetch asks again.
    """
    if leader.end_offset < 0:
        return fetch_offset
    if leader.epoch < 0 or own.epoch < 0:
        return min(leader.end_offset, own_end)
    if own.epoch != leader.epoch:
        return min(own.end_offset, own_end)
    return min(own.end_offset, leader.end_offset, own_end)
