"""The two small files of one log directory: `leader-epoch-checkpoint` and `partition.metadata`."""

from uuid import UUID

from klamm.log.epochs import LeaderEpochs
from klamm.log.names import LEADER_EPOCHS, PARTITION_METADATA
from klamm.log.partition_metadata import metadata_text
from klamm.runtime.small_files import Replacement, SmallFile


class PartitionFiles:
    """Tracks which of the two files have changes that are not written."""

    __slots__ = ("_epochs", "_metadata")

    def __init__(self, directory: str) -> None:
        self._epochs = SmallFile(f"{directory}/{LEADER_EPOCHS}")
        self._metadata = SmallFile(f"{directory}/{PARTITION_METADATA}")

    def move_to(self, directory: str) -> None:
        """Use these paths from now on, because the log's directory was renamed; no thread may be writing the files."""
        self._epochs.path = f"{directory}/{LEADER_EPOCHS}"
        self._metadata.path = f"{directory}/{PARTITION_METADATA}"

    def close(self) -> None:
        """Let no thread write the files any more, because the log is deleted: a new one may get its path."""
        self._epochs.close()
        self._metadata.close()

    @property
    def is_changed(self) -> bool:
        """Whether leader epochs or topic id have changes that are not written to disk."""
        return self._epochs.is_changed or self._metadata.is_changed

    def on_epochs_changed(self) -> None:
        """Record that the leader epochs changed."""
        self._epochs.next_version()

    def on_topic_id_assigned(self) -> None:
        """Record that a topic id was assigned."""
        self._metadata.next_version()

    def replacements(self, epochs: LeaderEpochs, topic_id: UUID | None) -> list[Replacement]:
        """The files to write so that the disk has the leader epochs and topic id that are in memory."""
        changed = []
        if self._epochs.is_changed:
            changed.append(self._epochs.replacement(epochs.text()))
        if self._metadata.is_changed and topic_id is not None:
            changed.append(self._metadata.replacement(metadata_text(topic_id)))
        return changed
