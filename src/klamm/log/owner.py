"""What a log asks of whoever keeps it: work that may wait for the device, and word of failures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from klamm.log.log import Log


class Owner(Protocol):
    def on_small_files_changed(self, log: "Log") -> None:
        """Its leader epochs or topic id changed: write `log.changed_small_files()` soon."""
        ...

    def on_rolled(self, log: "Log") -> None:
        """A segment was closed: flush the log up to the active one soon."""
        ...

    def on_recovery_point_lowered(self, log: "Log") -> None:
        """The log was cut below what is known to be on the device: checkpoint that soon."""
        ...

    def on_files_to_delete(self, paths: Sequence[str], delay_ms: int) -> None:
        """These files belong to removed segments: delete them after the delay."""
        ...

    def on_failed(self, log: "Log", error: OSError) -> None:
        """The device refused: the log's directory is out of use."""
        ...
