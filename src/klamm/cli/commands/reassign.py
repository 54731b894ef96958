"""`klamm reassign plan|apply|status|cancel|list`: the JSON of kafka-reassign-partitions, in and out."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from klamm.cli.admin import reassignments
from klamm.cli.admin.client import Admin, with_admin
from klamm.cli.admin.cluster import read_moves
from klamm.cli.admin.reassignments import Started
from klamm.cli.admin.refusals import Refusal, print_refusals
from klamm.cli.commands.reassign_plan import plan
from klamm.cli.options import LOCAL, TIMEOUT_S, AsJson, Bootstrap, Timeout, Wait
from klamm.cli.output import print_json, print_line, print_table
from klamm.model.assignment import ReplicaAssignment
from klamm.model.cluster import listed
from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.plan import json_files
from klamm.plan.progress import PartitionProgress, is_complete, is_over, progress_text
from klamm.plan.throttles import Changes
from klamm.runtime.disk import RealDisk

reassign_app = typer.Typer(help="Move partitions to other brokers.", no_args_is_help=True)
File = Annotated[
    str, typer.Option("--reassignment-json-file", help='file: {"version":1,"partitions":[{"topic":..., ...}]}')
]
KeepThrottles = Annotated[bool, typer.Option("--preserve-throttles", help="keep the throttles")]
_FILE = "--reassignment-json-file"
_WAIT_S = 600.0
_NO_REASSIGNMENT = "No partition is being reassigned."
MaybeTimeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0.1, help="give up after this many seconds; default 30, with --wait 600"),
]


reassign_app.command()(plan)


@reassign_app.command()
def apply(
    file: File,
    bootstrap: Bootstrap = LOCAL,
    throttle: Annotated[
        int | None, typer.Option("--throttle", min=1, help="limit of bytes per second that each broker copies")
    ] = None,
    additional: Annotated[
        bool,
        typer.Option("--additional", help="start even if other reassignments run; the throttle then applies to all"),
    ] = False,
    preserve_throttles: KeepThrottles = False,
    wait: Wait = False,
    as_json: AsJson = False,
    timeout: MaybeTimeout = None,
) -> None:
    """Start a reassignment. Prints the current assignment for a rollback. --wait waits for the end."""
    wanted = _read_reassignment(file)

    async def start_and_wait(admin: Admin) -> tuple[Started, list[PartitionProgress], Changes, list[Refusal]]:
        """Start the reassignment; with --wait, wait for its end, and remove the throttles unless another one runs."""
        current = await reassignments.current_assignment(admin, wanted)
        if not as_json:  # before anything is changed
            print_line("Current assignment, for a rollback:")
            print_json(json_files.reassignment_as_data(current))
        started = await reassignments.start(admin, wanted, current, throttle, additional)
        if not wait or not started.begun:
            return started, [], {}, []
        found = await reassignments.wait_until_over(admin, {at: wanted[at] for at in started.begun})
        if preserve_throttles or await read_moves(admin):  # others still need them
            return started, found, {}, []
        return started, found, *await reassignments.unthrottle(admin, {at.topic for at in wanted})

    started, found, unset, refused = with_admin(bootstrap, _timeout_s(timeout, wait), start_and_wait)
    if as_json:
        print_json(
            {
                "current": json_files.reassignment_as_data(started.current),
                "started": [at._asdict() for at in started.begun],
                "refused": [r.as_data() for r in started.refused],
                "status": _progress_as_data(found),
                "throttles_removed": _removed_as_data(unset),
            }
        )
    else:
        _print_start(started, throttle, wait)
        if found:
            _print_progress(found, unset)
    is_fine = not wait or is_complete(found)
    raise typer.Exit(print_refusals([*started.refused, *refused]) or int(not is_fine))


def _print_start(started: Started, throttle: int | None, wait: bool) -> None:
    """Print which partitions began to move."""
    if started.begun:
        print_line(f"Started: {len(started.begun):,} partitions ({_first_partitions(started.begun)})")
    if started.begun and throttle is not None and not wait:
        print_line("Throttled: run `klamm reassign status` with the same file at the end; it removes the throttles.")


def _first_partitions(partitions: Sequence[TopicPartition], most: int = 10) -> str:
    """The first partitions, and how many more there are."""
    return ", ".join(map(str, partitions[:most])) + (" ..." if len(partitions) > most else "")


@reassign_app.command()
def status(
    file: Annotated[
        str | None, typer.Option(_FILE, help="the file that was applied; default: all running reassignments")
    ] = None,
    bootstrap: Bootstrap = LOCAL,
    preserve_throttles: KeepThrottles = False,
    wait: Wait = False,
    as_json: AsJson = False,
    timeout: MaybeTimeout = None,
) -> None:
    """Show the progress; remove the throttles when everything is complete. Exit status 1: not complete."""
    wanted = None if file is None else _read_reassignment(file)

    async def read_and_unthrottle(admin: Admin) -> tuple[list[PartitionProgress], Changes, list[Refusal]]:
        """Read the progress, with --wait until no reassignment runs; then remove the throttles of the topics."""
        found, moving = await reassignments.read_progress(admin, wanted)
        if wait and not is_over(found):
            found = await reassignments.wait_until_over(admin, wanted or {s.at: s.wanted for s in found})
            moving = bool(await read_moves(admin))
        if wanted is None or moving or preserve_throttles:
            return found, {}, []
        return found, *await reassignments.unthrottle(admin, {at.topic for at in wanted})

    found, unset, refused = with_admin(bootstrap, _timeout_s(timeout, wait), read_and_unthrottle)
    if as_json:
        print_json({"partitions": _progress_as_data(found), "throttles_removed": _removed_as_data(unset)})
    else:
        _print_progress(found, unset)
    raise typer.Exit(print_refusals(refused) or int(not is_complete(found)))


def _print_progress(found: Sequence[PartitionProgress], unset: Changes) -> None:
    """Print the progress of each partition, and which throttles were removed."""
    print_table(
        ("partition", "state", "wanted", "replicas"),
        [(s.at, progress_text(s), listed(s.wanted), listed(s.replicas)) for s in found],
        if_empty=_NO_REASSIGNMENT,
    )
    for entity, changes in unset.items():
        typer.echo(f"Throttle removed: {entity}: {', '.join(changes)}", err=True)


def _progress_as_data(found: Sequence[PartitionProgress]) -> list[dict[str, object]]:
    """The progress of each partition for `--json`."""
    return [
        {
            **s.at._asdict(),
            "state": s.state.value,
            "wanted": s.wanted,
            "replicas": s.replicas,
            "waits_for": s.waits_for,
            "dead": s.dead,
        }
        for s in found
    ]


def _removed_as_data(unset: Changes) -> list[dict[str, object]]:
    """The removed throttle configs for `--json`."""
    return [{"entity": str(entity), "keys": list(changes)} for entity, changes in unset.items()]


@reassign_app.command()
def cancel(
    file: Annotated[str | None, typer.Option(_FILE, help="cancel these partitions")] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="cancel the reassignments of this topic; repeatable")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="cancel everything")] = False,
    bootstrap: Bootstrap = LOCAL,
    preserve_throttles: KeepThrottles = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Cancel reassignments: the replicas stay where they were."""
    if sum((file is not None, bool(topic), everything)) != 1:
        raise UsageError(f"Choose exactly one of {_FILE} FILE, --topic TOPIC and --all.")
    wanted = None if file is None else _read_reassignment(file)

    cancelled, unset, refused = with_admin(
        bootstrap, timeout, lambda admin: reassignments.cancel(admin, wanted, topic or (), preserve_throttles)
    )
    if as_json:
        print_json(
            {
                "cancelled": [at._asdict() for at in cancelled],
                "refused": [r.as_data() for r in refused],
                "throttles_removed": _removed_as_data(unset),
            }
        )
    else:
        print_line(
            f"Cancelled: {_first_partitions(cancelled)}"
            if cancelled
            else "None of these partitions is being reassigned."
        )
    raise typer.Exit(print_refusals(refused))


@reassign_app.command("list")
def list_(bootstrap: Bootstrap = LOCAL, as_json: AsJson = False, timeout: Timeout = TIMEOUT_S) -> None:
    """List the running reassignments."""
    moves = with_admin(bootstrap, timeout, read_moves)
    if as_json:
        print_json([{**at._asdict(), **move._asdict()} for at, move in moves.items()])
    else:
        _print_moves(moves)


def _print_moves(moves: Mapping[TopicPartition, ReplicaAssignment]) -> None:
    """Print the reassignments under way: replicas, adding, removing."""
    rows = [(at, listed(m.replicas), listed(m.adding), listed(m.removing)) for at, m in moves.items()]
    print_table(("partition", "replicas", "adding", "removing"), rows, if_empty=_NO_REASSIGNMENT)


def _timeout_s(timeout: float | None, wait: bool) -> float:
    """The timeout in seconds: the given one, else a default, which is longer with `--wait`."""
    return timeout if timeout is not None else _WAIT_S if wait else TIMEOUT_S


def _read_reassignment(path: str) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Return the target replicas by partition that the JSON file lists."""
    return json_files.parse_reassignment(json_files.read_file(RealDisk(), _FILE, path), path)
