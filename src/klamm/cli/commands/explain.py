"""`klamm explain TOPIC-PARTITION | TOPIC | broker N | controller | reassignment`."""

from collections.abc import Callable, Sequence
from typing import Annotated, Final, NamedTuple

import typer

from klamm.cli.options import Data
from klamm.cli.output import print_json, print_line
from klamm.explain import brokers, partitions
from klamm.explain.answer import Answer, zookeeper_problem
from klamm.explain.sources import ExplainInputs, Sources, is_not_partition_line, read_inputs
from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId, parse_topic_partition
from klamm.runtime.disk import Disk, RealDisk
from klamm.telemetry.journal_reader import Wanted, about

MAX_EVENTS: Final = 12
"""Events of a partition that are shown without `--all`."""


def explain(
    words: Annotated[
        list[str],
        typer.Argument(metavar="SUBJECT", help="TOPIC-PARTITION, TOPIC, broker N, controller or reassignment"),
    ],
    data: Data = "klamm-data",
    journal: Annotated[
        list[str] | None, typer.Option("--journal", help="journal directory of a node; repeatable")
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap-server", help="HOST:PORT of a cluster from whose journal topic to read")
    ] = None,
    zookeeper: Annotated[
        str | None, typer.Option("--zookeeper", help="HOST:PORT[/chroot] to read the current state and find remedies")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="show all events of a partition, not only the last 12")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Explain what happened to a partition, topic or broker, and why.

    Shows the current state, since when and by which event, what is pending, and which command repairs a problem.
    """
    sources = Sources(data, journal or [], bootstrap, zookeeper)
    raise typer.Exit(run_explain(words, sources, as_json, everything=everything))


class Subject(NamedTuple):
    answer: Callable[[ExplainInputs], Answer]
    needed_lines: Wanted
    """The journal lines that the answer needs."""


def run_explain(
    words: Sequence[str], sources: Sources, as_json: bool = False, disk: Disk | None = None, *, everything: bool = False
) -> int:
    """Print the explanation of a subject; returns the exit status.

    The status is 1 if the subject is unknown or ZooKeeper is unreachable. Raises CannotExplain.
    """
    subject = parse_subject(words, None if everything else MAX_EVENTS)
    inputs = read_inputs(sources, disk or RealDisk(), subject.needed_lines)
    answer = subject.answer(inputs)
    lines = [*answer.lines, *zookeeper_problem(inputs)]
    if as_json:
        print_json({"subject": " ".join(words), "known": answer.is_known, "lines": lines})
    else:
        for line in lines:
            print_line(line)
    is_unreachable = inputs.zookeeper_problem is not None and sources.zookeeper is not None
    return 0 if answer.is_known and not is_unreachable else 1


def parse_subject(words: Sequence[str], max_events: int | None = None) -> Subject:
    """Parse the words of the command line. Raises UsageError when they are not a subject."""
    match list(words):
        case ["controller"]:
            return Subject(brokers.explain_controller, is_not_partition_line)
        case ["reassignment"]:
            return Subject(brokers.explain_reassignments, is_not_partition_line)
        case ["broker", number] if number.isdigit():
            return Subject(lambda inputs: brokers.explain_broker(inputs, BrokerId(int(number))), is_not_partition_line)
        case [name] if name != "broker":
            topics = {name, name.rpartition("-")[0] or name}
            return Subject(lambda inputs: _topic_or_partition(inputs, name, max_events), about(*sorted(topics)))
    raise UsageError(
        f"Cannot explain {' '.join(words)!r}. Name a TOPIC-PARTITION, a TOPIC, broker N, controller or reassignment."
    )


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
