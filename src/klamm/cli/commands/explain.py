"""`klamm explain TOPIC-PARTITION | TOPIC | broker N | controller | reassignment | group G | transaction ID`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, NamedTuple

import typer

from klamm.cli.admin.client import Admin, CannotAsk, with_admin
from klamm.cli.admin.coordinated import read_group, read_transaction
from klamm.cli.options import Data
from klamm.cli.output import print_json, print_line
from klamm.coordinator.decision_journal import COORDINATED_PARTITION, GROUP, TRANSACTION
from klamm.coordinator.topic_partitions import OFFSETS_TOPIC
from klamm.explain import brokers, partitions
from klamm.explain.answer import Answer, zookeeper_problem
from klamm.explain.groups import explain_group
from klamm.explain.live import GroupNow, TransactionNow
from klamm.explain.sources import (
    CannotExplain,
    ExplainInputs,
    Sources,
    bootstrap_of_cluster,
    is_not_partition_line,
    read_inputs,
)
from klamm.explain.topic_reading import CannotRead
from klamm.explain.transactions import explain_transaction
from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.runtime.disk import Disk, RealDisk
from klamm.telemetry.journal_reader import Wanted, about, only_about

SUBJECTS: Final = "TOPIC-PARTITION, TOPIC, broker N, controller, reassignment, group G or transaction ID"
LIVE_TIMEOUT_S: Final = 20.0
MAX_EVENTS: Final = 12
"""Events of a partition that are shown without `--all`."""


def explain(
    words: Annotated[
        list[str],
        typer.Argument(metavar="SUBJECT", help=SUBJECTS),
    ],
    data: Data = "klamm-data",
    journal: Annotated[
        list[str] | None, typer.Option("--journal", help="journal directory of a node; repeatable")
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap-server", help="HOST:PORT of a cluster whose journal topic to read")
    ] = None,
    zookeeper: Annotated[
        str | None, typer.Option("--zookeeper", help="HOST:PORT[/chroot] to read the current state and find remedies")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="show all events of a partition, not only the last 12")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Explain what happened to a partition, topic, broker, group or transaction, and why.

    Shows the current state, since when and by which event, what is pending, and which command repairs a problem.
    """
    sources = Sources(data, journal or [], bootstrap, zookeeper)
    raise typer.Exit(run_explain(words, sources, as_json, everything=everything))


class Subject(NamedTuple):
    answer: Callable[[ExplainInputs], Answer]
    needed_lines: Wanted
    """The journal lines that the answer needs."""
    read_live: Callable[[Admin], Awaitable[GroupNow | TransactionNow]] | None = None
    """Asks a coordinator, where the answer needs it."""


def run_explain(
    words: Sequence[str], sources: Sources, as_json: bool = False, disk: Disk | None = None, *, everything: bool = False
) -> int:
    """Print the explanation of a subject; returns the exit status.

    The status is 1 if the subject is unknown or ZooKeeper is unreachable. Raises CannotExplain.
    """
    subject = parse_subject(words, None if everything else MAX_EVENTS)
    inputs = _inputs(subject, sources, disk or RealDisk())
    answer = subject.answer(inputs)
    lines = [*answer.lines, *zookeeper_problem(inputs)]
    if as_json:
        print_json({"subject": " ".join(words), "known": answer.is_known, "lines": lines})
    else:
        for line in lines:
            print_line(line)
    is_unreachable = inputs.zookeeper_problem is not None and sources.zookeeper is not None
    return 0 if answer.is_known and not is_unreachable else 1


def _inputs(subject: Subject, sources: Sources, disk: Disk) -> ExplainInputs:
    """Read what the explanation needs: the journal, ZooKeeper, and the coordinator's answer.

    Raises CannotExplain where none can be read.
    """
    if subject.read_live is None:
        return read_inputs(sources, disk, subject.needed_lines)
    live, problem = _ask_live(subject.read_live, sources, disk)
    try:
        inputs = read_inputs(sources, disk, subject.needed_lines)
    except (CannotExplain, CannotRead) as error:
        if live is None:
            raise CannotExplain(f"{error}; {problem}") from error
        inputs = ExplainInputs(entries=[], where="the journal, which cannot be read", now=None)
    is_stale = inputs.may_be_stale and live is None
    return inputs._replace(live=live, live_problem=problem, may_be_stale=is_stale)


def _ask_live(
    read: Callable[[Admin], Awaitable[GroupNow | TransactionNow]], sources: Sources, disk: Disk
) -> tuple[GroupNow | TransactionNow | None, str | None]:
    """Ask the coordinator for the subject's present state; returns it, or None and the reason why it is not known."""
    bootstrap = sources.bootstrap or bootstrap_of_cluster(disk, sources.data)
    if bootstrap is None or (sources.journals and not sources.bootstrap):
        return None, "name the cluster with --bootstrap-server HOST:PORT for its present state"
    try:
        return with_admin(bootstrap, LIVE_TIMEOUT_S, read), None
    except CannotAsk as error:
        return None, str(error)


def parse_subject(words: Sequence[str], max_events: int | None = None) -> Subject:
    """Parse the words of the command line. Raises UsageError when they are not a subject."""
    match list(words):
        case ["controller"]:
            return Subject(brokers.explain_controller, is_not_partition_line)
        case ["reassignment"]:
            return Subject(brokers.explain_reassignments, is_not_partition_line)
        case ["broker", number] if number.isascii() and number.isdigit():
            return Subject(lambda inputs: brokers.explain_broker(inputs, BrokerId(int(number))), is_not_partition_line)
        case ["group", name] if name:
            kinds = (GROUP, COORDINATED_PARTITION)
            wanted = only_about(kinds, name, OFFSETS_TOPIC)
            return Subject(lambda inputs: explain_group(inputs, name), wanted, lambda admin: read_group(admin, name))
        case ["transaction", name] if name:
            return Subject(
                lambda inputs: explain_transaction(inputs, name, max_events),
                only_about((TRANSACTION,), name),
                lambda admin: read_transaction(admin, name),
            )
        case [name] if name != "broker":
            topics = {name, name.rpartition("-")[0] or name}
            return Subject(lambda inputs: _topic_or_partition(inputs, name, max_events), about(*sorted(topics)))
    raise UsageError(f"Cannot explain {' '.join(words)!r}. Name one of: {SUBJECTS}.")


def _topic_or_partition(inputs: ExplainInputs, name: str, max_events: int | None) -> Answer:
    """Explain a partition or topic: `orders-0` is a partition, unless only a topic `orders-0` exists."""
    try:
        partition = parse_topic_partition(name)
    except ValueError:
        return partitions.explain_topic(inputs, name)
    answer = partitions.explain_partition(inputs, partition, max_events)
    if not answer.is_known and (as_topic := partitions.explain_topic(inputs, name)).is_known:
        return as_topic
    return answer
