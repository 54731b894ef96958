"""Groups results by topic, as responses have them."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from klamm.runtime.time_slices import Slices

T = TypeVar("T")


async def group_by_topic(results: Iterable[tuple[str, T]], slices: Slices) -> dict[str, list[T]]:
    """Group lazy pairs of topic and result by topic, in the order in which the topics come first, in time slices."""
    topics: dict[str, list[T]] = {}
    if (rest := slices.begin(_add_each(results, topics))) is not None:
        await rest
    return topics


def _add_each(results: Iterable[tuple[str, T]], topics: dict[str, list[T]]) -> Iterator[None]:
    """Add each result to those of its topic; pauses after each."""
    for topic, result in results:
        topics.setdefault(topic, []).append(result)
        yield
