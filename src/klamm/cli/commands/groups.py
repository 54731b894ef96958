"""`klamm groups list|describe|lag|reset-offsets|delete-offsets|delete`, with the flags of kafka-consumer-groups."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from klamm.cli.admin import groups, offset_resets
from klamm.cli.admin.client import Admin, CannotAsk, with_admin
from klamm.cli.admin.groups import DEAD, GROUP_STATES, GROUP_TYPES, Group, Lag
from klamm.cli.admin.refusals import Refusal, print_refusals
from klamm.cli.commands.reset_offsets import reset_offsets
from klamm.cli.options import LOCAL, TIMEOUT_S, AsJson, Bootstrap, Timeout, Yes
from klamm.cli.output import confirm, print_error, print_json, print_line, print_table
from klamm.model.errors import UsageError
from klamm.model.ids import TopicPartition

groups_app = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True)
Name = Annotated[str, typer.Option("--group", help="name of the group")]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", help="partitions: TOPIC or TOPIC:PARTITION,...; repeatable")
]
SomeNames = Annotated[list[str] | None, typer.Option("--group", help="name of a group; repeatable")]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="all groups")]
_NO_VALUE = "-"


@groups_app.command("list")
def list_(
    bootstrap: Bootstrap = LOCAL,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="only groups in this state: Stable, Empty, ...; repeatable")
    ] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="only groups of this type: classic; repeatable")
    ] = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """List groups with their states and coordinators."""
    _check_names("--state", state or [], GROUP_STATES)
    _check_names("--type", type_ or [], GROUP_TYPES)
    found, refused = with_admin(bootstrap, timeout, lambda admin: groups.list_groups(admin, state or [], type_ or []))
    if as_json:
        print_json([group._asdict() for group in found])
    elif found:
        print_table(("group", "protocol type", "state", "coordinator"), found)
    elif not refused:
        print_error("No group was found.")
    raise typer.Exit(print_refusals(refused))


@groups_app.command()
def describe(
    group: SomeNames = None,
    bootstrap: Bootstrap = LOCAL,
    all_groups: AllGroups = False,
    members: Annotated[bool, typer.Option("--members", help="show members instead of offsets")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="with --members: show their partitions")] = False,
    state: Annotated[bool, typer.Option("--state", help="show only state, assignor and number of members")] = False,
    offsets: Annotated[bool, typer.Option("--offsets", help="show offsets and lag (default)")] = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Show state, members and offsets of groups. Exit status 1: a group does not exist."""
    if members + state + offsets > 1:
        raise UsageError("--members, --state and --offsets exclude each other: omit all but one.")

    async def read(admin: Admin) -> list[tuple[Group, list[Lag]]]:
        """Read the groups and their lags."""
        return await _read_lags(admin, await _named(admin, group, all_groups))

    found = with_admin(bootstrap, timeout, read)
    if as_json:
        print_json([_group_data(described, lags) for described, lags in found])
    for described, lags in [] if as_json else found:
        if described.state == DEAD:
            continue
        print_line(_headline(described))
        if members and described.members:
            _print_members(described, verbose=verbose)
        elif lags and not (members or state):
            _print_lags(described, lags)
    raise typer.Exit(_report_absent(described for described, _ in found))


@groups_app.command()
def lag(
    group: SomeNames = None,
    bootstrap: Bootstrap = LOCAL,
    all_groups: AllGroups = False,
    max_lag: Annotated[
        int | None,
        typer.Option("--max-lag", min=0, help="exit status 1 if a group lags by more than this many records"),
    ] = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Show by how many records groups lag behind, for each topic. Exit status 1: a group does not exist."""

    async def read(admin: Admin) -> list[tuple[Group, list[Lag]]]:
        """Read the groups and their lags."""
        return await _read_lags(admin, await _named(admin, group, all_groups))

    found = with_admin(bootstrap, timeout, read)
    rows = [(g.name, *row) for g, lags in found for row in _lag_by_topic(lags)]
    if as_json:
        print_json([{"group": g, "topic": t, "lag": n, "uncommitted_partitions": u} for g, t, n, u in rows])
    elif rows:
        print_table(("group", "topic", "lag", "partitions without offset"), rows)
    status = _report_absent(g for g, _ in found)
    totals = [sum(row[1] for row in _lag_by_topic(lags)) for _, lags in found]
    lags_behind = max_lag is not None and any(total > max_lag for total in totals)
    raise typer.Exit(int(lags_behind) or status)


groups_app.command("reset-offsets")(reset_offsets)


@groups_app.command("delete-offsets")
def delete_offsets(
    group: Name,
    topic: Annotated[list[str], typer.Option("--topic", help="partitions: TOPIC or TOPIC:PARTITION,...; repeatable")],
    bootstrap: Bootstrap = LOCAL,
    yes: Yes = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Delete the offsets of topics that no member of the group reads."""
    confirm(f"This deletes the offsets of group {group} in {', '.join(topic)}.", yes)

    async def delete_selected(admin: Admin) -> tuple[list[TopicPartition], list[Refusal]]:
        """Delete the group's offsets of the named topics.

        Returns the partitions that were deleted, and the refusals.
        """
        selected = await offset_resets.select_partitions(admin, group, topic, all_topics=False)
        refused = await groups.delete_offsets(admin, group, selected)
        left = {refusal.subject.rpartition(", ")[2] for refusal in refused}
        is_whole = any(refusal.subject == f"group {group}" for refusal in refused)
        return [] if is_whole else [p for p in selected if str(p) not in left], refused

    deleted, refused = with_admin(bootstrap, timeout, delete_selected)
    if as_json:
        print_json({"deleted": list(map(str, deleted)), "refused": [r.as_data() for r in refused]})
    elif deleted:
        print_line(f"Deleted the offsets of group {group} in {', '.join(map(str, deleted))}.")
    raise typer.Exit(print_refusals(refused))


@groups_app.command()
def delete(
    group: SomeNames = None,
    bootstrap: Bootstrap = LOCAL,
    all_groups: AllGroups = False,
    yes: Yes = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Delete groups without members, and their offsets."""
    names = with_admin(bootstrap, timeout, lambda admin: _named(admin, group, all_groups))
    confirm(f"This deletes {', '.join(names)} and every committed offset.", yes)

    async def delete_all(admin: Admin) -> list[Refusal]:
        """Delete each named group and return the refusals."""
        return [refusal for name in names if (refusal := await groups.delete_group(admin, name)) is not None]

    refused = with_admin(bootstrap, timeout, delete_all)
    left = {refusal.subject for refusal in refused}
    deleted = [name for name in names if f"group {name}" not in left]
    if as_json:
        print_json({"deleted": deleted, "refused": [r.as_data() for r in refused]})
    else:
        for name in deleted:
            print_line(f"Group {name} is deleted.")
    raise typer.Exit(print_refusals(refused))


# ---- what is asked


def _check_names(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    """Raise UsageError for a name that no group can have. Upper and lower case are the same, as for brokers."""
    for name in given:
        if name.lower() not in map(str.lower, known):
            raise UsageError(f"{option} {name!r} is not valid. Give one of {', '.join(known)}.")


async def _named(admin: Admin, names: Sequence[str] | None, all_groups: bool) -> list[str]:
    """The named groups, or all. Raises UsageError, and CannotAsk where a broker does not list its groups."""
    if bool(names) == all_groups:
        raise UsageError("Choose the groups: give either --group or --all-groups.")
    if names:
        return list(names)
    listed, refused = await groups.list_groups(admin)
    if refused:
        raise CannotAsk(str(refused[0]))
    return [found.group for found in listed]


async def _read_lags(admin: Admin, names: Sequence[str]) -> list[tuple[Group, list[Lag]]]:
    """Read the lag of each group."""
    described = [await groups.describe_group(admin, name) for name in names]
    return [(group, await groups.read_lag(admin, group)) for group in described]


# ---- what is shown


def _headline(group: Group) -> str:
    """Return the first line about a group: name, state, number of members, assignor."""
    assignor = f", assignor {group.assignor}" if group.assignor else ""
    return f"Group {group.name}: {group.state}, {len(group.members)} members{assignor}"


def _report_absent(found: Iterable[Group]) -> int:
    """Print an error for each group that does not exist; return the exit status, 0 where all exist."""
    absent = [group.name for group in found if group.state == DEAD]
    for name in absent:
        print_error(f"Group {name} does not exist. `klamm groups list` shows the groups.")
    return int(bool(absent))


def _print_members(group: Group, *, verbose: bool) -> None:
    """Print a table of the group's members."""
    columns = ("member", "instance", "client", "host", "partitions", *(["assignment"] if verbose else []))
    rows = [
        (m.member_id, m.instance_id, m.client_id, m.host, len(m.partitions))
        + ((", ".join(map(str, m.partitions)),) if verbose else ())
        for m in group.members
    ]
    print_table(columns, rows)


def _print_lags(group: Group, lags: Sequence[Lag]) -> None:
    """Print a table with committed offset, log end and lag of each partition, and the member that has it."""
    columns = ("group", "topic", "partition", "committed", "log end", "lag", "member", "host", "client")
    rows = [
        (
            group.name,
            p.topic,
            p.partition,
            *map(_shown, (found.committed, found.end, found.lag)),
            *((m.member_id, m.host, m.client_id) if (m := found.member) else (_NO_VALUE,) * 3),
        )
        for found in lags
        for p in (found.partition,)
    ]
    print_table(columns, rows)


def _shown(number: int | None) -> str:
    """The number as text for the table; a dash where it is not known."""
    return _NO_VALUE if number is None else str(number)


def _lag_by_topic(lags: Sequence[Lag]) -> list[tuple[str, int, int]]:
    """The sums for each topic: records the group lags behind, and partitions without a committed offset.

    A negative lag, of an offset after the end of a truncated log, does not offset the lag of other partitions.
    """
    topics = dict.fromkeys(found.partition.topic for found in lags)
    return [
        (
            topic,
            sum(max(found.lag or 0, 0) for found in lags if found.partition.topic == topic),
            sum(found.committed is None for found in lags if found.partition.topic == topic),
        )
        for topic in topics
    ]


def _group_data(group: Group, lags: Sequence[Lag]) -> dict[str, Any]:
    """The group and its lags for `--json`."""
    return {
        "group": group.name,
        "state": group.state,
        "assignor": group.assignor,
        "members": [{**member._asdict(), "partitions": list(map(str, member.partitions))} for member in group.members],
        "offsets": [
            {
                "topic": found.partition.topic,
                "partition": found.partition.partition,
                "committed": found.committed,
                "log_end": found.end,
                "lag": found.lag,
                "member": found.member.member_id if found.member else None,
            }
            for found in lags
        ],
    }
