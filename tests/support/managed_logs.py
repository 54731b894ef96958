"""Logs of a `LogManager` for tests: created one by one without a loop, and a manager that ends as in a crash."""

from uuid import UUID

from klamm.config.topic_config import TopicConfig
from klamm.log.errors import StorageFailed
from klamm.log.log import Log
from klamm.log.manager import LogManager, LogRequest
from klamm.model.ids import TopicPartition


def get_or_create(
    logs: LogManager, partition: TopicPartition, config: TopicConfig, topic_id: UUID | None, *, is_new: bool = False
) -> Log:
    """What `get_or_create_many` does for one partition, without a thread. Raises StorageFailed."""
    request = LogRequest(partition, config, topic_id, is_new)
    refused: dict[TopicPartition, StorageFailed] = {}
    if partition not in logs.logs:
        places = logs._choose_directories([request], refused)
        for (_, home), result in zip(places, logs._open_all(places), strict=True):
            logs._register_opened(partition, home, result)
    found = logs._log_or_error(request, refused)
    if isinstance(found, StorageFailed):
        raise found
    return found


async def crash(logs: LogManager) -> None:
    """Stop all work and unlock the directories without flushing, as the end of a killed process does."""
    await logs._stop_writing()
    logs._files.close()
    for directory in logs._registry.directories.values():
        directory.unlock()
