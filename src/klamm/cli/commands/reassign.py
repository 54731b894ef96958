"""`klamm reassign plan|apply|status|cancel|list`: the JSON of kafka-reassign-partitions, in and out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import typer

from klamm.cli.admin import log_dirs, reassignments
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
from klamm.plan.json_files import LogDirs, Reassignment
from klamm.plan.log_dir_progress import LogDirProgress, are_log_dirs_complete, wanted_paths
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


@dataclass(slots=True)
class _Applied:
    """What `klamm reassign apply` began, and what became of it with --wait."""

    started: Started
    progress: list[PartitionProgress] = field(default_factory=list)
    log_dirs: list[LogDirProgress] = field(default_factory=list)
    unset: Changes = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)


reassign_app.command()(plan)


@reassign_app.command()
def apply(
    file: File,
    bootstrap: Bootstrap = LOCAL,
    throttle: Annotated[
        int | None, typer.Option("--throttle", min=1, help="limit of bytes per second that each broker copies")
    ] = None,
    log_dirs_throttle: Annotated[
        int | None,
        typer.Option(
            "--replica-alter-log-dirs-throttle",
            min=1,
            help="limit of bytes per second that each broker copies between its log directories",
        ),
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
    """Start a reassignment, also between log directories. Prints the current assignment for a rollback.

    --wait waits for the end.
    """
    wanted = _read_reassignment(file)

    async def start_and_wait(admin: Admin) -> _Applied:
        """Start the reassignment; with --wait, wait for its end, and remove the throttles unless another one runs."""
        current = await reassignments.current_assignment(admin, wanted.replicas)
        await log_dirs.check_log_dirs(admin, wanted.log_dirs, file)
        if not as_json:  # before anything is changed
            print_line("Current assignment, for a rollback:")
            print_json(json_files.reassignment_as_data(current))
        await log_dirs.prefer_log_dirs(admin, _of_new_replicas(wanted, current))
        started = await reassignments.start(admin, wanted.replicas, current, throttle, additional)
        applied = _Applied(started)
        begun = {at: paths for at, paths in wanted.log_dirs.items() if at in set(started.begun)}
        if begun and log_dirs_throttle is not None:
            brokers = wanted_paths(begun)
            applied.refused += await reassignments.throttle_log_dir_moves(admin, brokers, log_dirs_throttle)
        applied.refused += await log_dirs.start_log_dir_moves(admin, begun)
        if not wait or not started.begun:
            return applied
        applied.progress = await reassignments.wait_until_over(admin, {at: wanted.replicas[at] for at in started.begun})
        applied.log_dirs = await log_dirs.wait_until_moved(admin, begun)
        if not preserve_throttles and not await read_moves(admin):  # else others still need them
            applied.unset, refused = await reassignments.unthrottle(admin, {at.topic for at in wanted.replicas})
            applied.refused += refused
        return applied

    applied = with_admin(bootstrap, _timeout_s(timeout, wait), start_and_wait)
    is_throttled = throttle is not None or (log_dirs_throttle is not None and bool(wanted.log_dirs))
    _print_applied(applied, as_json, is_throttled and not wait)
    is_fine = not wait or (is_complete(applied.progress) and are_log_dirs_complete(applied.log_dirs))
    raise typer.Exit(print_refusals([*applied.started.refused, *applied.refused]) or int(not is_fine))


def _of_new_replicas(wanted: Reassignment, current: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> LogDirs:
    """The log directories of replicas that the reassignment adds."""
    added = {
        at: {b: path for b, path in paths.items() if b not in current[at]} for at, paths in wanted.log_dirs.items()
    }
    return {at: paths for at, paths in added.items() if paths}


def _print_applied(applied: _Applied, as_json: bool, keeps_throttles: bool) -> None:
    """Print what began, and with --wait how it ended."""
    started = applied.started
    if as_json:
        print_json(
            {
                "current": json_files.reassignment_as_data(started.current),
                "started": [at._asdict() for at in started.begun],
                "refused": [r.as_data() for r in (*started.refused, *applied.refused)],
                "status": _progress_as_data(applied.progress),
                "log_dirs": [p._asdict() for p in applied.log_dirs],
                "throttles_removed": _removed_as_data(applied.unset),
            }
        )
        return
    if started.begun:
        print_line(f"Started: {len(started.begun):,} partitions ({_first_partitions(started.begun)})")
    if applied.progress:
        _print_progress(applied.progress, applied.log_dirs, applied.unset)
    if started.begun and keeps_throttles:
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
    replicas, paths = (None, {}) if wanted is None else wanted

    async def read_and_unthrottle(
        admin: Admin,
    ) -> tuple[list[PartitionProgress], list[LogDirProgress], Changes, list[Refusal]]:
        """Read the progress, with --wait until no reassignment runs; then remove the throttles of the topics."""
        found, moving = await reassignments.read_progress(admin, replicas)
        if wait and not is_over(found):
            found = await reassignments.wait_until_over(admin, replicas or {s.at: s.wanted for s in found})
            moving = bool(await read_moves(admin))
        read_dirs = log_dirs.wait_until_moved if wait else log_dirs.read_log_dir_progress
        dirs = await read_dirs(admin, paths)
        if replicas is None or moving or any(p.is_moving for p in dirs) or preserve_throttles:
            return found, dirs, {}, []
        return found, dirs, *await reassignments.unthrottle(admin, {at.topic for at in replicas})

    found, dirs, unset, refused = with_admin(bootstrap, _timeout_s(timeout, wait), read_and_unthrottle)
    if as_json:
        print_json(
            {
                "partitions": _progress_as_data(found),
                "log_dirs": [p._asdict() for p in dirs],
                "throttles_removed": _removed_as_data(unset),
            }
        )
    else:
        _print_progress(found, dirs, unset)
    raise typer.Exit(print_refusals(refused) or int(not (is_complete(found) and are_log_dirs_complete(dirs))))


def _print_progress(found: Sequence[PartitionProgress], dirs: Sequence[LogDirProgress], unset: Changes) -> None:
    """Print the progress of each partition and log directory, and which throttles were removed."""
    print_table(
        ("partition", "state", "wanted", "replicas"),
        [(s.at, progress_text(s), listed(s.wanted), listed(s.replicas)) for s in found],
        if_empty=_NO_REASSIGNMENT,
    )
    if dirs:
        print_table(
            ("partition", "broker", "state", "wanted log directory", "log directory"),
            [(p.at, p.broker, p.state.value, p.wanted, p.current) for p in dirs],
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
    """Cancel reassignments: the replicas stay where they were. With a file also its moves to log directories."""
    if sum((file is not None, bool(topic), everything)) != 1:
        raise UsageError(f"Choose exactly one of {_FILE} FILE, --topic TOPIC and --all.")
    replicas, paths = (None, {}) if file is None else _read_reassignment(file)

    async def cancel_moves(
        admin: Admin,
    ) -> tuple[list[TopicPartition], list[LogDirProgress], Changes, list[Refusal]]:
        """Cancel the moves to other log directories, then those to other brokers, and remove the throttles."""
        stopped, refused = await log_dirs.cancel_log_dir_moves(admin, paths)
        cancelled, unset, more = await reassignments.cancel(admin, replicas, topic or (), preserve_throttles)
        return cancelled, stopped, unset, [*refused, *more]

    cancelled, stopped, unset, refused = with_admin(bootstrap, timeout, cancel_moves)
    if as_json:
        print_json(
            {
                "cancelled": [at._asdict() for at in cancelled],
                "log_dirs_cancelled": [p._asdict() for p in stopped],
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
        for p in stopped:
            print_line(f"Cancelled: {p.at} on broker {p.broker} stays in {p.current}")
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


def _read_reassignment(path: str) -> Reassignment:
    """Return the target replicas and log directories by partition that the JSON file lists."""
    return json_files.parse_reassignment(json_files.read_file(RealDisk(), _FILE, path), path)
