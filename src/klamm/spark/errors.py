"""What ends a read: each text names topic, partition, offset and what to do."""

from typing import Final

from klamm.model.errors import KlammError

READ_AGAIN: Final = "Read again; if it fails in the same way, the log on the leader of this partition is damaged."


class BadOption(KlammError):
    """An option that is unknown, misspelt, contradicts another one, or has a value that cannot be."""


class DataLoss(KlammError):
    """Records of the requested range are gone; `lost` says which and why."""

    def __init__(self, lost: object) -> None:
        self.lost = str(lost)
        super().__init__(
            f"{lost}. To read on without these records, set the option onDataLoss to skip, or to report for a row "
            "that says what is lost."
        )
