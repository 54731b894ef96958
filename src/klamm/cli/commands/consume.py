"""`klamm consume`, with kcat's letters."""

from collections.abc import Callable
from typing import Annotated, Final

import typer

from klamm.cli.admin.client import parse_addresses
from klamm.cli.options import LOCAL, Bootstrap, Progress
from klamm.cli.records.consume import ConsumeOptions, check_options, consume
from klamm.cli.records.positions import parse_start
from klamm.cli.records.printing import Printer
from klamm.cli.records.running import run_stream
from klamm.cli.records.text import default_format, null_text, parse_delimiter, parse_format
from klamm.cli.times import parse_time
from klamm.client.group_member import MemberSettings
from klamm.model.errors import UsageError
from klamm.runtime.world import real_world

_ISOLATION: Final = {"read_committed": True, "read_uncommitted": False}
_HEARTBEATS_PER_SESSION: Final = 3
_MAX_HEARTBEAT_INTERVAL_S: Final = 3.0
_MAX_TIMEOUT_S: Final = 2_147_483.0
"""A request has it as milliseconds in 32 bits."""

Topics = Annotated[list[str] | None, typer.Option("--topic", "-t", help="topic to read; repeatable")]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="partition to read; repeatable; default: all")
]
Start = Annotated[
    str | None,
    typer.Option(
        "--offset",
        "-o",
        help="where to start: beginning (default), end, stored, an offset, or -N for N records before the end",
    ),
]
From = Annotated[
    str | None,
    typer.Option("--from", help="start at the first record of this time or later, for example 2026-01-31T08:00Z"),
]
Since = Annotated[
    str | None, typer.Option("--since", help="start at the records of this long before now, for example 10m")
]
Until = Annotated[str | None, typer.Option("--until", help="end before the first record of this time or later")]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-G",
        help="consume as a member of this group, from its committed offsets (without any: from --offset, default end)",
    ),
]
InstanceId = Annotated[
    str | None, typer.Option("--instance-id", help="group.instance.id, to be a static member of the group")
]
SessionTimeout = Annotated[
    float,
    typer.Option(
        "--session-timeout", min=0.001, max=_MAX_TIMEOUT_S, help="seconds until the group removes a silent member"
    ),
]
Commit = Annotated[
    bool, typer.Option("--commit/--no-commit", help="commit the offsets of the group (default), or do not")
]
ExitAtEnd = Annotated[bool, typer.Option("--exit", "-e", help="exit at the end of all partitions")]
Count = Annotated[int | None, typer.Option("--count", "-c", min=1, help="exit after this many records")]
Form = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        help=r"how to print a record, for example '%t %p %o %k: %s\n' (topic, partition, offset, key, payload)",
    ),
]
AsJsonLines = Annotated[bool, typer.Option("--json", "-J", help="print JSON lines")]
KeyDelimiter = Annotated[
    str | None, typer.Option("--key-delimiter", "-K", help="print the key and this text before the payload")
]
Delimiter = Annotated[str, typer.Option("--delimiter", "-D", help="text to print after each record")]
Null = Annotated[bool, typer.Option("--null", "-Z", help="print NULL for null keys, payloads and header values")]
IsolationLevel = Annotated[str, typer.Option("--isolation-level", help="read_committed or read_uncommitted")]
ReadTimeout = Annotated[
    float, typer.Option("--timeout", min=0.1, help="give up when a partition could not be read for this many seconds")
]


def command(
    topic: Topics = None,
    bootstrap: Bootstrap = LOCAL,
    partition: Partitions = None,
    offset: Start = None,
    from_: From = None,
    since: Since = None,
    until: Until = None,
    group: Group = None,
    instance_id: InstanceId = None,
    session_timeout: SessionTimeout = 45.0,
    commit: Commit = True,
    exit_at_end: ExitAtEnd = False,
    count: Count = None,
    form: Form = None,
    as_json: AsJsonLines = False,
    key_delimiter: KeyDelimiter = None,
    delimiter: Delimiter = r"\n",
    null: Null = False,
    isolation_level: IsolationLevel = "read_committed",
    timeout: ReadTimeout = 60.0,
    progress: Progress = None,
) -> None:
    """Print the records of topics, until Ctrl-C or an end: --exit, --count, --until."""
    if isolation_level not in _ISOLATION:
        raise UsageError(f"--isolation-level {isolation_level!r} is not valid. Give one of {', '.join(_ISOLATION)}.")
    topics = tuple(dict.fromkeys(topic or ()))
    world = real_world()
    options = ConsumeOptions(
        topics=topics,
        partitions=tuple(sorted(set(partition or ()))),
        start=parse_start(offset, from_, since, world.clock.now_ms()),
        until_ms=None if until is None else parse_time("--until", until),
        group=group,
        member=_member(group, topics, partition, instance_id, session_timeout),
        commits=commit,
        exits_at_end=exit_at_end,
        count=count,
        read_committed=_ISOLATION[isolation_level],
        make_printer=_printer_maker(form, as_json, key_delimiter, delimiter, null),
        timeout_s=timeout,
        progress=progress,
    )
    check_options(options)
    addresses = parse_addresses(bootstrap)
    raise typer.Exit(run_stream(lambda: consume(world, addresses, options)))


def _member(
    group: str | None,
    topics: tuple[str, ...],
    partitions: list[int] | None,
    instance_id: str | None,
    session_timeout_s: float,
) -> MemberSettings | None:
    """The settings of the group member that subscribes; None without a group, or where partitions are chosen.

    Raises UsageError.
    """
    if group == "":
        raise UsageError("--group is empty: give the name of a group.")
    if group is None or partitions:
        if instance_id is not None:
            raise UsageError(
                "--instance-id is only for members of a group: add --group and omit --partition, or omit --instance-id."
            )
        return None
    interval_s = min(session_timeout_s / _HEARTBEATS_PER_SESSION, _MAX_HEARTBEAT_INTERVAL_S)
    return MemberSettings(group, topics, instance_id, int(session_timeout_s * 1000), heartbeat_interval_s=interval_s)


def _printer_maker(
    form: str | None, as_json: bool, key_delimiter: str | None, delimiter: str, null: bool
) -> Callable[[], Printer]:
    """Return the function that makes the printer for these options. Raises UsageError where they conflict."""
    if as_json and (form is not None or key_delimiter is not None):
        raise UsageError(
            f"--json cannot be used with {'--format' if form is not None else '--key-delimiter'}: omit one of them."
        )
    if form is not None and key_delimiter is not None:
        raise UsageError(
            "--format cannot be used with --key-delimiter: omit --key-delimiter, and write %k into the format."
        )
    if as_json:
        return lambda: Printer(None)
    shown = null_text(null)
    if form is not None:
        parsed = parse_format(form, shown)
        return lambda: Printer(parsed)
    parted = None if key_delimiter is None else parse_delimiter("--key-delimiter", key_delimiter)
    plain = default_format(parted, parse_delimiter("--delimiter", delimiter), shown)
    return lambda: Printer(plain)
