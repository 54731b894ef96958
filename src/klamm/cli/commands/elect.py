"""`klamm elect`, with the flags of kafka-leader-election."""

from typing import Annotated

import typer

from klamm.cli.admin.client import Admin, with_admin
from klamm.cli.admin.cluster import read_cluster
from klamm.cli.admin.elections import Elected, ElectionType
from klamm.cli.admin.elections import elect as run_elect
from klamm.cli.admin.refusals import print_refusals
from klamm.cli.options import LOCAL, TIMEOUT_S, AsJson, Bootstrap, Timeout, Yes
from klamm.cli.output import confirm, print_json, print_table
from klamm.model.errors import UsageError
from klamm.model.ids import TopicPartition
from klamm.plan.json_files import parse_election, read_file
from klamm.runtime.disk import RealDisk

_FILE = "--path-to-json-file"


def elect(
    election_type: Annotated[
        ElectionType, typer.Option("--election-type", help="preferred, or unclean, which may lose records")
    ],
    bootstrap: Bootstrap = LOCAL,
    topic: Annotated[
        str | None, typer.Option("--topic", help="elect for all partitions of this topic, or for one with --partition")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="elect only for this partition of --topic")
    ] = None,
    all_partitions: Annotated[
        bool, typer.Option("--all-topic-partitions", help="elect for all partitions of the cluster")
    ] = False,
    file: Annotated[str | None, typer.Option(_FILE, help='{"partitions":[{"topic":"orders","partition":0}]}')] = None,
    yes: Yes = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Elect leaders: preferred replicas, or (unclean) any live replica of partitions without a live in-sync one."""
    if sum((topic is not None, all_partitions, file is not None)) != 1:
        raise UsageError(f"Choose partitions with exactly one of --topic, --all-topic-partitions and {_FILE}.")
    if partition is not None and topic is None:
        raise UsageError(f"--partition {partition} needs a topic: add --topic.")
    listed = None if file is None else parse_election(read_file(RealDisk(), _FILE, file), file)
    if election_type is ElectionType.UNCLEAN:
        confirm("An unclean election loses all records that the new leader does not have.", yes)

    async def run_election(admin: Admin) -> Elected:
        """Elect leaders of the partitions that the options name: of one partition, of one topic, or of all."""
        if topic is None:
            return await run_elect(admin, election_type, listed)
        numbers = [partition] if partition is not None else await _partitions_of(admin, topic)
        return await run_elect(admin, election_type, [TopicPartition(topic, n) for n in numbers])

    _print_outcome(with_admin(bootstrap, timeout, run_election), as_json)


async def _partitions_of(admin: Admin, topic: str) -> list[int]:
    """All partition numbers of the topic; for an unknown topic 0, so that the controller answers with the error."""
    found = (await read_cluster(admin, [topic])).topics.get(topic)
    return list(found.partitions) if found else [0]


def _print_outcome(outcome: Elected, as_json: bool) -> None:
    """Print which partitions got a leader, needed none, or were refused, as text or JSON."""
    if as_json:
        print_json(
            {
                "elected": [at._asdict() for at in outcome.elected],
                "not_needed": [at._asdict() for at in outcome.not_needed],
                "refused": [{**at._asdict(), **refusal.as_data()} for at, refusal in outcome.refused],
            }
        )
    else:
        rows = [(at, "elected") for at in outcome.elected] + [(at, "not needed") for at in outcome.not_needed]
        rows += [(at, "refused") for at, _ in outcome.refused]
        print_table(("partition", "election"), sorted(rows), if_empty="No partition needed an election.")
    raise typer.Exit(print_refusals([refusal for _, refusal in outcome.refused]))
