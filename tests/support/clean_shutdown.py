"""What a log manager found of the last shutdown."""

from klamm.log.manager import LogManager


def clean_shutdown_epochs(logs: LogManager) -> set[int | None]:
    """The broker epochs in the clean shutdown files of its directories; None where there was none."""
    return {directory.clean_epoch for directory in logs._registry.directories.values()}
