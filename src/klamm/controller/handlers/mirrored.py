"""Takes the mirror that this node kept before its election into the term, and finds what of it has to be read again."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from klamm.controller.loading import remove_topics
from klamm.controller.steps import gather_limited
from klamm.controller.term_context import TermContext
from klamm.controller.topic import Partition
from klamm.zk.errors import NoAuth
from klamm.zk.fenced import chunks
from klamm.zk.jute import Stat

COMPARED_TOPICS = 250
"""Topics whose znodes are compared in one step."""


class Unread(NamedTuple):
    """What the context still lacks."""

    topics: Sequence[str]
    partitions: Sequence[Partition]
    """Partitions of other topics whose state has to be read."""


async def take_mirror(term: TermContext, since: int, listed: Sequence[str]) -> Unread:
    """Fill the context from the standby's mirror, if there is one; return what has still to be read from ZooKeeper.

    At the zxid `since`, all writes of earlier controllers are fenced. The mirror is taken once it has the notices of
    all changes up to there: each is either noted or in it. Topics are compared by their mzxid, and watched from now on,
    as a read of them would do.
    """
    mirror = await term.take_mirror(since)
    if mirror is None:
        return Unread(listed, ())
    context = mirror.context
    try:
        stats = await _watch_topics(term, [name for name in listed if name in context.topics])
    except NoAuth as error:
        term.journal.refused(
            term.cause,
            "mirror",
            f"{error} Topics and partitions are read from ZooKeeper instead of taken from the mirror.",
        )
        await mirror.discard()
        return Unread(listed, ())
    changed = [name for name in context.topics if not _is_unchanged(mirror.mzxids[name], stats.get(name))]
    await remove_topics(context, term.slices, changed)
    term.context.take_over(context)
    unread = Unread([name for name in listed if name not in context.topics], await mirror.unread_partitions())
    term.journal.line(
        term.cause,
        "warm",
        topic_count=len(context.topics),
        partition_count=context.partition_count,
        topics_to_read=len(unread.topics),
        states_to_read=len(unread.partitions),
    )
    return unread


async def _watch_topics(term: TermContext, names: Sequence[str]) -> dict[str, Stat | None]:
    """The stats of these topics' znodes, whose next changes are watched. Raises NoAuth."""

    async def watch(some: list[str]) -> list[Stat | None]:
        """The stats of a few."""
        await term.slices.checkpoint(len(some))
        return await term.store.watch_topics(some)

    found = await gather_limited(watch(chunk) for chunk in chunks(names, COMPARED_TOPICS))
    return dict(zip(names, chain.from_iterable(found), strict=True))


def _is_unchanged(mzxid: int, stat: Stat | None) -> bool:
    """Whether the znode is the one that was read: a topic that was created again has another mzxid, too."""
    return stat is not None and stat.mzxid == mzxid
