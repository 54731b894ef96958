"""`klamm groups reset-offsets`, with the flags and the CSV of kafka-consumer-groups."""

from collections.abc import Collection, Sequence
from typing import Annotated, NamedTuple

import typer

from klamm.cli.admin import groups, offset_resets
from klamm.cli.admin.client import Admin, CannotAsk, with_admin
from klamm.cli.admin.groups import INACTIVE
from klamm.cli.admin.offset_files import Offsets, format_offsets, parse_offsets_file
from klamm.cli.admin.offset_resets import PlannedReset, Reset, ResetKind
from klamm.cli.admin.refusals import Refusal, print_refusals
from klamm.cli.options import LOCAL, TIMEOUT_S, AsJson, Bootstrap, Timeout
from klamm.cli.output import print_error, print_json, print_line, print_table
from klamm.cli.times import parse_duration, parse_time
from klamm.model.errors import UsageError
from klamm.runtime.world import real_world

_NO_VALUE = "-"


class GroupReset(NamedTuple):
    """What happens to one group's offsets."""

    group: str
    plan: list[PlannedReset]
    refused: list[Refusal]


def reset_offsets(
    group: Annotated[list[str] | None, typer.Option("--group", help="name of a group; repeatable")] = None,
    bootstrap: Bootstrap = LOCAL,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="all consumer groups without members")] = False,
    topic: Annotated[list[str] | None, typer.Option("--topic", help="TOPIC or TOPIC:PARTITION,...; repeatable")] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="all topics for which the group has committed offsets")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="reset to the first record")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="reset to the end, after the last record")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="keep the offset that is committed now")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", help="reset to this offset")] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="move the committed offset by this many records, back if negative")
    ] = None,
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", help="reset to this time: YYYY-MM-DDTHH:mm:SS.sss, UTC")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", help="reset to this long before now: PnDTnHnMnS")
    ] = None,
    from_file: Annotated[str | None, typer.Option("--from-file", help="reset to the offsets in this CSV file")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show the offsets and change nothing (default)")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="change the offsets")] = False,
    export: Annotated[bool, typer.Option("--export", help="print CSV for --from-file")] = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Reset the offsets of groups without members; without --execute show what would change."""
    if dry_run and execute:
        raise UsageError("--dry-run cannot be used with --execute: omit one of them.")
    if export and as_json:
        raise UsageError("--export cannot be used with --json: omit one of them.")
    if bool(group) == all_groups:
        raise UsageError("Choose the groups: give either --group or --all-groups.")
    resets = _resets(to_earliest, to_latest, to_current, to_offset, shift_by, to_datetime, by_duration)
    if len(resets) + (from_file is not None) != 1:
        flags = ", ".join([*ResetKind, "--by-duration", "--from-file"])
        raise UsageError(f"Choose where to reset to: give exactly one of {flags}.")
    if (bool(topic) + all_topics) != (from_file is None):
        raise UsageError("Choose the partitions: give exactly one of --topic, --all-topics and --from-file.")
    file = None if from_file is None else _read_file(from_file, group or [])

    async def plan_and_execute(admin: Admin) -> list[GroupReset]:
        """Plan the new offsets of each group, and commit them if `--execute` is given."""
        names = dict.fromkeys(group or await _all_inactive(admin))
        return [await _reset_group(admin, name, topic or (), resets, file, execute) for name in names]

    done = with_admin(bootstrap, timeout, plan_and_execute)
    if export:
        _print_csv(done, has_one_group=len(group or ()) == 1)
    else:
        _print(done, has_one_group=len(group or ()) == 1, execute=execute, as_json=as_json)
    if not execute and not as_json and not export:
        print_error("Nothing was changed. Pass --execute to commit the new offsets.")
    raise typer.Exit(print_refusals([refusal for reset in done for refusal in reset.refused]))


async def _reset_group(
    admin: Admin,
    name: str,
    topics: Sequence[str],
    resets: Sequence[Reset],
    file: dict[str, Offsets] | None,
    execute: bool,
) -> GroupReset:
    """Plan the new offsets of a group without members, and commit them if `execute` is true."""
    await _check_inactive(admin, name)
    plan = await _plan(admin, name, topics, resets, file)
    offsets = {row.partition: row.planned for row in plan}
    refused = await groups.commit_offsets(admin, name, offsets) if execute and plan else []
    return GroupReset(name, plan, refused)


# ---- what is asked


def _resets(
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
) -> list[Reset]:
    """The resets that the flags ask for. Raises UsageError."""
    flags = ((ResetKind.EARLIEST, to_earliest), (ResetKind.LATEST, to_latest), (ResetKind.CURRENT, to_current))
    asked = [Reset(kind) for kind, is_asked in flags if is_asked]
    if to_offset is not None:
        asked.append(Reset(ResetKind.OFFSET, to_offset))
    if shift_by is not None:
        asked.append(Reset(ResetKind.SHIFT, shift_by))
    if to_datetime is not None:
        asked.append(Reset(ResetKind.TIME, parse_time("--to-datetime", to_datetime)))
    if by_duration is not None:
        now_ms = real_world().clock.now_ms()
        asked.append(Reset(ResetKind.TIME, max(0, now_ms - parse_duration("--by-duration", by_duration))))
    return asked


def _read_file(path: str, names: Sequence[str]) -> dict[str, Offsets]:
    """The offsets of the file. Raises UsageError."""
    try:
        content = real_world().disk.read(path).decode("utf-8-sig")  # spreadsheets write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or error
        raise UsageError(f"Cannot read --from-file {path}: {why}. Give a file as --export prints it.") from None
    return parse_offsets_file(content, path, names[0] if len(names) == 1 else None)


async def _all_inactive(admin: Admin) -> list[str]:
    """The consumer groups without members. Raises CannotAsk where a broker does not list its groups."""
    listed, refused = await groups.list_groups(admin)
    if refused:
        raise CannotAsk(str(refused[0]))
    return [g.group for g in listed if g.state in INACTIVE and g.protocol_type in ("", groups.CONSUMER)]


async def _check_inactive(admin: Admin, name: str) -> None:
    """Raise CannotAsk where the group has members."""
    state = (await groups.describe_group(admin, name)).state
    if state not in INACTIVE:
        raise CannotAsk(f"group {name} has members (state {state}): offsets can be reset once they have stopped")


async def _plan(
    admin: Admin, name: str, topics: Collection[str], resets: Sequence[Reset], file: dict[str, Offsets] | None
) -> list[PlannedReset]:
    """The new offsets of one group. Raises UsageError, CannotAsk."""
    if file is None:
        partitions = await offset_resets.select_partitions(admin, name, topics, all_topics=not topics)
        return await offset_resets.plan_reset(admin, name, partitions, resets[0])
    if name not in file:
        raise UsageError(f"--from-file has no offsets of group {name}: it has those of {', '.join(sorted(file))}.")
    plan = await offset_resets.plan_offsets(admin, name, file[name])
    if missing := sorted(file[name].keys() - {row.partition for row in plan}):
        raise UsageError(f"--from-file names {missing[0]}, which does not exist. Remove its line.")
    return plan


# ---- what is shown


def _print_csv(done: Sequence[GroupReset], *, has_one_group: bool) -> None:
    """Print the planned offsets as lines for --from-file."""
    planned = {reset.group: {row.partition: row.planned for row in reset.plan} for reset in done}
    for line in format_offsets(planned, has_one_group=has_one_group):
        print_line(line)


def _print(done: Sequence[GroupReset], *, has_one_group: bool, execute: bool, as_json: bool) -> None:
    """Print the plans: one table, or one JSON object for each group."""
    if as_json:
        for reset in done:
            data = [
                {"topic": p.topic, "partition": p.partition, "committed": committed, "new": planned}
                for p, committed, planned in reset.plan
            ]
            print_json({"group": reset.group, "executed": execute, "offsets": data})
        return
    rows = [
        (reset.group, p.topic, p.partition, _NO_VALUE if committed is None else committed, planned)
        for reset in done
        for p, committed, planned in reset.plan
    ]
    columns = ("group", "topic", "partition", "committed", "new")
    if rows and has_one_group:
        print_table(columns[1:], [row[1:] for row in rows])
    elif rows:
        print_table(columns, rows)
