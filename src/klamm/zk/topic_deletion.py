"""Removal of topics from ZooKeeper.

Source: KafkaZkClient.deleteTopicZNode, deleteTopicConfigs, deleteTopicDeletions (3.9).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from klamm.zk import znodes
from klamm.zk.fenced import MAX_OPS, FencedWriter, chunks
from klamm.zk.operations import Delete
from klamm.zk.port import ZooKeeperClient

LISTS_AT_ONCE: Final = 2_000
"""Znodes whose children are listed in one step."""
TOPICS_AT_ONCE: Final = MAX_OPS // 2
"""Topics that are deleted in one multi, each with its config."""


class TopicDeletionStore:
    """Fenced deletions of topics, and of the requests to delete topics."""

    def __init__(self, client: ZooKeeperClient, writer: FencedWriter) -> None:
        self._client = client
        self._writer = writer

    async def list_requests(self) -> list[str]:
        """Topics with a deletion request, in order of names; the list is watched from now on."""
        return sorted((await self._client.children(znodes.DELETE_TOPICS, watch=True))[0])

    async def delete_topics(self, topics: Sequence[str]) -> dict[str, str]:
        """Delete all znodes of these topics; returns the reasons by topic for those that could not be deleted.

        The deletion requests are not deleted here: after a crash in between, the next controller begins again.
        """
        below = reversed(await self._levels_below([znodes.topic_path(t) for t in topics]))
        failed: dict[str, str] = {}
        for level in below:
            failed |= await self._delete(path for path in level if _topic_of(path) not in failed)
        for chunk in chunks((t for t in topics if t not in failed), TOPICS_AT_ONCE):
            failed |= await self._delete_with_configs(chunk)
        return failed

    async def _delete_with_configs(self, topics: Sequence[str]) -> dict[str, str]:
        """Delete topics without partitions in the same multi as their configs, or if it is refused, after them.

        No topic is deleted before its config: a later topic of the same name would have it.
        """
        paths, configs = [znodes.topic_path(t) for t in topics], [znodes.topic_config_path(t) for t in topics]
        if await self._writer.write_together([Delete(path) for path in (*paths, *configs)]):
            return {}
        failed = await self._delete(configs)
        return failed | await self._delete(path for path in paths if _topic_of(path) not in failed)

    async def _delete(self, paths: Iterable[str]) -> dict[str, str]:
        """Delete znodes of topics; returns the reasons by topic for those that could not be deleted."""
        left = await self._writer.delete_all(list(paths))
        return {_topic_of(path): f"{path} cannot be deleted: {code.name}" for path, code in left.items()}

    async def delete_requests(self, topics: Iterable[str]) -> dict[str, str]:
        """Delete deletion requests; returns the reasons by path for those that could not be deleted."""
        left = await self._writer.delete_all([znodes.delete_topic_path(t) for t in topics])
        return {path: f"it cannot be removed: {code.name}" for path, code in left.items()}

    async def _levels_below(self, paths: Sequence[str]) -> list[list[str]]:
        """All znodes below these, as a list for each level, the nearest level first."""
        levels: list[list[str]] = []
        parents = paths
        while parents:
            level: list[str] = []
            for chunk in chunks(parents, LISTS_AT_ONCE):
                for listed in await self._client.children_many(chunk):
                    level += [f"{listed.path}/{child}" for child in listed.children]
            if level:
                levels.append(level)
            parents = [path for path in level if not path.endswith("/state")]
        return levels


def _topic_of(path: str) -> str:
    """The topic in `/brokers/topics/TOPIC/...` or `/config/topics/TOPIC`."""
    return path.split("/")[3]
