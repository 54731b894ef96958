"""The history of a cluster for a plan: from the tables of `klamm insight follow`, or from journal files."""

from klamm.cli.quiet_spark import quiet_session
from klamm.explain.sources import CannotExplain, journal_directories
from klamm.insight.journal import read_files
from klamm.insight.plan_history import plan_history
from klamm.insight.store import InsightStore
from klamm.insight.tables import open_journal, open_store
from klamm.model.errors import UsageError
from klamm.plan.history import History
from klamm.runtime.disk import Disk, RealDisk

_TABLES, _JOURNAL = "commits", "klamm-journal-"


def read_history(directory: str, since_ms: int, until_ms: int) -> History:
    """The history between two times, ms since 1970. Raises UsageError for a directory without tables or journal."""
    disk = RealDisk()
    names = disk.list_directory(directory) if disk.is_directory(directory) else []
    if _TABLES in names:
        journal = open_store(InsightStore(quiet_session("klamm reassign plan"), directory))
    else:
        journals = [directory] if any(name.startswith(_JOURNAL) for name in names) else _of_nodes(disk, directory)
        journal = open_journal(read_files(quiet_session("klamm reassign plan"), journals), lay_out=True)
    kept = journal.steps, journal.intervals, journal.causes
    for table in kept:
        if not table.is_cached:
            table.cache()
    try:
        return plan_history(journal, since_ms, until_ms)
    finally:
        for table in kept:
            table.unpersist()


def _of_nodes(disk: Disk, directory: str) -> list[str]:
    """The journal directories of the nodes of `klamm up`. Raises UsageError."""
    try:
        return journal_directories(disk, directory)
    except CannotExplain:
        raise UsageError(
            f"--history {directory} has neither tables of klamm insight follow nor journal files. Make tables of the "
            "journal topic: klamm insight follow --tables DIRECTORY --bootstrap-server HOST:PORT --once"
        ) from None
