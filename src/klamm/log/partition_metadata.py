"""`partition.metadata`: the topic id of a log directory. Source: PartitionMetadataFile.java."""

from typing import Final
from uuid import UUID

from klamm.log.errors import CorruptFile
from klamm.model.topic_ids import ZERO_ID, id_from_text, id_to_text
from klamm.runtime.disk import Disk

_VERSION: Final = "0"


def metadata_text(topic_id: UUID) -> bytes:
    """Return the content for the file `partition.metadata` with this topic id."""
    return f"version: {_VERSION}\ntopic_id: {id_to_text(topic_id)}".encode()


def write_topic_id(disk: Disk, path: str, topic_id: UUID) -> None:
    """Write a new `partition.metadata` file with this topic id, without syncing it. Raises OSError."""
    file = disk.open(path, create=True)
    try:
        file.pwrite([metadata_text(topic_id)], 0)
    finally:
        file.close()


def read_topic_id(disk: Disk, path: str) -> UUID | None:
    """The topic id in partition.metadata; None where there is no file. Raises OSError, CorruptFile."""
    try:
        content = disk.read(path)
    except FileNotFoundError:
        return None
    try:
        fields = dict(line.split(":", 1) for line in content.decode().splitlines() if line.strip())
        topic_id = id_from_text(fields["topic_id"].strip())
        if fields["version"].strip() != _VERSION or topic_id == ZERO_ID:
            raise ValueError(content)
    except (ValueError, KeyError) as error:
        raise CorruptFile(
            f"{path} is damaged: its lines must be version: {_VERSION} and topic_id: ID, an id in base64 that is not "
            "zero"
        ) from error
    return topic_id
