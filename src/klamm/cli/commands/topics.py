"""`klamm topics list|describe|create|alter|delete`, with the flags of kafka-topics."""

from typing import Annotated

import typer

from klamm.cli.admin import topic_changes, topic_descriptions
from klamm.cli.admin.client import Admin, CannotAsk, with_admin
from klamm.cli.admin.refusals import Refusal, print_refusals
from klamm.cli.admin.topic_descriptions import TopicQuery
from klamm.cli.admin.topic_selection import Filters, parse_assignment
from klamm.cli.options import LOCAL, TIMEOUT_S, AsJson, Bootstrap, Timeout, Wait, Yes, parse_pairs
from klamm.cli.output import confirm, print_error, print_json, print_line
from klamm.model.errors import ErrorCode, UsageError
from klamm.model.topic_ids import id_from_text

topics_app = typer.Typer(help="List, describe, create, alter and delete topics.", no_args_is_help=True)
Pattern = Annotated[
    str, typer.Option("--topic", help="topic name or regular expression, or several separated by commas")
]
ShownPattern = Annotated[
    str | None, typer.Option("--topic", help="topic name or regular expression, or several separated by commas")
]
NoInternal = Annotated[bool, typer.Option("--exclude-internal", help="omit internal topics")]
ReplicaAssignment = Annotated[
    str | None,
    typer.Option("--replica-assignment", help="brokers of each partition, for example 1:2,2:3 for two partitions"),
]


@topics_app.command("list")
def list_(
    bootstrap: Bootstrap = LOCAL,
    topic: ShownPattern = None,
    exclude_internal: NoInternal = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """List the names of topics."""
    query = TopicQuery(topic, exclude_internal=exclude_internal)
    names = with_admin(bootstrap, timeout, lambda admin: topic_descriptions.list_topics(admin, query))
    if as_json:
        print_json(names)
    elif names:
        print_line("\n".join(names))
    else:
        print_error("No topic was found.")


@topics_app.command()
def describe(
    bootstrap: Bootstrap = LOCAL,
    topic: ShownPattern = None,
    topic_id: Annotated[str | None, typer.Option("--topic-id", help="the topic with this id")] = None,
    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated-partitions",
            help="show only under-replicated partitions; exit status 1 if there are any",
        ),
    ] = False,
    unavailable: Annotated[
        bool,
        typer.Option(
            "--unavailable-partitions",
            help="show only partitions without a live leader; exit status 1 if there are any",
        ),
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr-partitions", help="show only partitions below min ISR; exit status 1 if there are any"
        ),
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr-partitions", help="show only partitions at min ISR")
    ] = False,
    non_preferred: Annotated[
        bool, typer.Option("--non-preferred", help="show only partitions whose leader is not the preferred one")
    ] = False,
    exclude_internal: NoInternal = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="no error if the topic does not exist")] = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Show topics and partitions: leader, preferred leader, replicas, ISR, problems."""
    filters = Filters(under_replicated, unavailable, under_min_isr, at_min_isr, non_preferred)
    try:
        wanted_id = None if topic_id is None else id_from_text(topic_id)
    except ValueError as error:
        raise UsageError(f"--topic-id: {error}. `klamm topics describe` shows the ids.") from error
    query = TopicQuery(topic, wanted_id, filters, exclude_internal)
    described, refused = with_admin(bootstrap, timeout, lambda admin: topic_descriptions.describe(admin, query))
    if not described.topics and (topic or topic_id) and not if_exists:
        raise typer.Exit(print_refusals([topic_changes.no_such_topic(topic_id or str(topic))]))
    topic_descriptions.print_description(described, filters, as_json)
    is_unhealthy = (under_replicated or unavailable or under_min_isr) and bool(described.rows)
    raise typer.Exit(print_refusals(refused) or int(is_unhealthy))


@topics_app.command()
def create(
    topic: Annotated[str, typer.Option("--topic", help="name of the new topic")],
    bootstrap: Bootstrap = LOCAL,
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="number of partitions; default: num.partitions of the brokers")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", help="number of replicas; default: default.replication.factor of the brokers"
        ),
    ] = None,
    replica_assignment: ReplicaAssignment = None,
    config: Annotated[list[str] | None, typer.Option("--config", help="KEY=VALUE; repeatable")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="no error if the topic exists")] = False,
    wait: Wait = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Create a topic."""
    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise UsageError("--replica-assignment cannot be used with --partitions and --replication-factor: omit these.")
    for option, number in (("--partitions", partitions), ("--replication-factor", replication_factor)):
        if number is not None and not 0 < number < 2**31:
            raise UsageError(f"{option} {number} is not valid: it must be at least 1.")
    if replication_factor is not None and replication_factor > 2**15 - 1:
        raise UsageError(f"--replication-factor {replication_factor} is not valid: it must be from 1 to 32767.")
    assignment = None if replica_assignment is None else parse_assignment(replica_assignment)
    configs = parse_pairs("--config", config or [], "retention.ms=60000")
    new = topic_changes.NewTopic(topic, partitions, replication_factor, assignment, configs)

    async def create_and_wait(admin: Admin) -> Refusal | None:
        """Create the topic; with --wait, wait until every broker knows its leaders."""
        refusal = await topic_changes.create(admin, new)
        if wait and (refusal is None or refusal.code == ErrorCode.TOPIC_ALREADY_EXISTS):
            await topic_changes.wait_until(admin, [topic], topic_changes.has_leaders([topic], partitions))
        return refusal

    refusal = with_admin(bootstrap, timeout, create_and_wait)
    exists = refusal is not None and refusal.code == ErrorCode.TOPIC_ALREADY_EXISTS
    if refusal is not None and not (exists and if_not_exists):
        raise typer.Exit(print_refusals([refusal]))
    if as_json:
        print_json({"topic": topic, "created": refusal is None})
    else:
        print_line(f"Topic {topic} already exists." if exists else f"Created topic {topic}.")


@topics_app.command()
def alter(
    topic: Pattern,
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="the new number of partitions")],
    bootstrap: Bootstrap = LOCAL,
    replica_assignment: ReplicaAssignment = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="no error if the topic does not exist")] = False,
    wait: Wait = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Add partitions to topics. To change configs, use `klamm config set`."""
    assignment = None if replica_assignment is None else parse_assignment(replica_assignment)
    if assignment is not None and len(assignment) != partitions:
        raise UsageError(
            f"--replica-assignment lists {len(assignment)} partitions, but --partitions is {partitions}. List all of "
            "them, including the existing ones."
        )

    async def add_and_wait(admin: Admin) -> tuple[list[str], list[Refusal]]:
        """Add the partitions; with --wait, wait until every broker knows their leaders."""
        cluster, names = await topic_changes.find_topics(admin, topic)
        if not names:
            return [], [] if if_exists else [topic_changes.no_such_topic(topic)]
        refused = await topic_changes.add_partitions(admin, [cluster.topics[n] for n in names], partitions, assignment)
        grown = [n for n in names if f"topic {n}" not in {r.subject for r in refused}]
        if wait and grown:
            await topic_changes.wait_until(admin, grown, topic_changes.has_leaders(grown, partitions))
        return grown, refused

    grown, refused = with_admin(bootstrap, timeout, add_and_wait)
    if as_json:
        print_json({"altered": grown, "partitions": partitions, "refused": [r.as_data() for r in refused]})
    else:
        for name in grown:
            print_line(f"Topic {name} has {partitions} partitions.")
    raise typer.Exit(print_refusals(refused))


@topics_app.command()
def delete(
    topic: Pattern,
    bootstrap: Bootstrap = LOCAL,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="no error if the topic does not exist")] = False,
    wait: Wait = False,
    yes: Yes = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Delete topics and all their records."""
    names = with_admin(bootstrap, timeout, lambda admin: topic_changes.find_deletable(admin, topic))
    if not names and not if_exists:
        raise typer.Exit(print_refusals([topic_changes.no_such_topic(topic)]))
    if names:
        shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        confirm(f"This deletes {shown} and every record in {'them' if len(names) > 1 else 'it'}.", yes)

    async def delete_and_wait(admin: Admin) -> tuple[list[Refusal], dict[str, str]]:
        """Delete the topics; with --wait, wait until they are gone. Returns errors, and unconfirmed deletions."""
        refused = await topic_changes.delete(admin, names) if names else []
        left = {r.subject for r in refused}
        gone = [n for n in names if f"topic {n}" not in left]
        return refused, await topic_changes.wait_until_gone(admin, gone) if wait and gone else {}

    try:
        refused, unconfirmed = with_admin(bootstrap, timeout, delete_and_wait)
    except CannotAsk as error:
        raise CannotAsk(f"{error} `klamm explain {names[0]}` shows what it waits for.") from error
    deleted = [n for n in names if f"topic {n}" not in {r.subject for r in refused}]
    if as_json:
        print_json({"deleted": deleted, "unconfirmed": unconfirmed, "refused": [r.as_data() for r in refused]})
    else:
        for name in deleted:
            print_line(_deletion_text(name, wait, unconfirmed.get(name)))
    raise typer.Exit(print_refusals(refused))


def _deletion_text(name: str, wait: bool, unconfirmed: str | None) -> str:
    """Return the message about a deleted topic; `unconfirmed` says why the end of the deletion is not known."""
    if not wait:
        return f"Topic {name} is being deleted."
    if unconfirmed is None:
        return f"Topic {name} is deleted."
    return f"No broker has topic {name} any more; it is unknown whether ZooKeeper still has it ({unconfirmed})."
