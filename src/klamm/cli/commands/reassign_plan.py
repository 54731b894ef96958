"""`klamm reassign plan`: which replicas to move, in waves for kafka-reassign-partitions."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from klamm.cli.admin.client import with_admin
from klamm.cli.admin.cluster_load import read_load
from klamm.cli.options import LOCAL, TIMEOUT_S, Bootstrap, Timeout
from klamm.cli.times import parse_past
from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId
from klamm.plan.cluster_load import cluster_as_data, parse_cluster
from klamm.plan.history import History
from klamm.plan.json_files import parse_topics_to_move, read_file
from klamm.runtime.clock import RealClock
from klamm.runtime.disk import RealDisk

MOVES_PER_BROKER = 50
BYTES_PER_WAVE = 100 * 1024**3
_TOPICS_FILE = "--topics-to-move-json-file"


def plan(
    bootstrap: Bootstrap = LOCAL,
    topics_file: Annotated[
        str | None,
        typer.Option(_TOPICS_FILE, help='file of topics to move: {"version":1,"topics":[{"topic":"orders"}]}'),
    ] = None,
    topic: Annotated[list[str] | None, typer.Option("--topic", help="move only this topic; repeatable")] = None,
    broker_list: Annotated[
        str | None, typer.Option("--broker-list", help="spread the replicas over only these brokers, for example 1,2,3")
    ] = None,
    remove_broker: Annotated[
        list[int] | None, typer.Option("--remove-broker", help="move all replicas off this broker; repeatable")
    ] = None,
    exclude: Annotated[
        list[int] | None, typer.Option("--exclude", help="move nothing to this broker; repeatable")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", min=1, help="new number of replicas")
    ] = None,
    balance: Annotated[
        bool,
        typer.Option("--balance", help="even out all brokers also with --remove-broker or --replication-factor"),
    ] = False,
    leaders_only: Annotated[
        bool, typer.Option("--leaders-only", help="change preferred leaders, copy nothing")
    ] = False,
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=0, help="percent by which brokers may differ from their share")
    ] = 5.0,
    history: Annotated[
        str | None,
        typer.Option(
            "--history",
            help="tables of `klamm insight follow`, or a journal directory: brokers that failed get fewer leaders",
        ),
    ] = None,
    since: Annotated[str, typer.Option("--since", help="begin of the history: 30d before now, or a time")] = "30d",
    measure: Annotated[
        float, typer.Option("--measure", min=0, help="seconds to measure rates; 0: without rates")
    ] = 10.0,
    cluster_file: Annotated[
        str | None, typer.Option("--cluster-file", help="read the cluster from this JSON file, not from brokers")
    ] = None,
    save_cluster: Annotated[
        str | None, typer.Option("--save-cluster", help="write what was read to this file, for --cluster-file")
    ] = None,
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="ignore racks")] = False,
    wave_moves: Annotated[
        int, typer.Option("--wave-moves", min=1, help="maximum replicas that a broker copies in one wave")
    ] = MOVES_PER_BROKER,
    wave_bytes: Annotated[
        int, typer.Option("--wave-bytes", min=1, help="maximum bytes that are copied in one wave")
    ] = BYTES_PER_WAVE,
    throttle: Annotated[
        int | None, typer.Option("--throttle", min=1, help="bytes per second, for the commands that are printed")
    ] = None,
    out: Annotated[str | None, typer.Option("--out", help="write waves and rollbacks into this directory")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print the plan in the format of kafka-reassign-partitions, with reasons")
    ] = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Plan which replicas to move, with a reason for each: as few as possible. Changes nothing.

    Without --remove-broker and --replication-factor it evens out replicas and leaders by number, size and rate, also
    for new brokers.
    """
    # numpy takes longer to load than the other verbs take to run
    from klamm.cli.planned import output_plan, plan_cluster
    from klamm.plan.goal import Goal
    from klamm.plan.planner import Extent
    from klamm.plan.waves import WaveLimits

    required = bool(remove_broker or replication_factor)
    _check_leaders_only(leaders_only, required or broker_list is not None or balance)
    extent = Extent.REQUIRED if required and broker_list is None and not balance else Extent.BALANCE
    topics = _topics(topic, topics_file)
    allowed = None if broker_list is None else parse_brokers(broker_list)
    disk = RealDisk()
    past = None if history is None else _read_history(history, since)
    left_out = frozenset[BrokerId]()
    if cluster_file is not None:
        load = parse_cluster(read_file(disk, "--cluster-file", cluster_file), cluster_file)
    else:
        load, left_out = with_admin(bootstrap, timeout + measure, lambda admin: read_load(admin, measure))
    load = load if past is None else load._replace(history=past)
    if save_cluster is not None:
        disk.write_atomically(save_cluster, msgspec.json.encode(cluster_as_data(load)))
    goal = Goal(
        drained=frozenset(map(BrokerId, remove_broker or ())),
        excluded=frozenset(map(BrokerId, exclude or ())) | (left_out - frozenset(allowed or ())),
        allowed=allowed,
        replication_factor=replication_factor,
        topics=topics,
        rack_aware=not disable_rack_aware,
    )
    limits = WaveLimits(wave_moves, wave_bytes)
    named = plan_cluster(load, goal, Extent.LEADERS if leaders_only else extent, tolerance / 100, limits)
    output_plan(named, load, as_json=as_json, out=out, throttle=throttle)


def _read_history(directory: str, since: str) -> History:
    """The history in the tables or journals of this directory. Raises UsageError."""
    now_ms = RealClock().now_ms()
    since_ms = parse_past("--since", since, now_ms)
    if since_ms >= now_ms:
        raise UsageError(f"--since {since} is not before now.")
    from klamm.cli.history import read_history  # needs Spark

    return read_history(directory, since_ms, now_ms)


def _check_leaders_only(leaders_only: bool, moves_replicas: bool) -> None:
    """Raise UsageError where a plan shall copy nothing, and yet move replicas."""
    if leaders_only and moves_replicas:
        raise UsageError(
            "--leaders-only copies nothing: leave out --remove-broker, --broker-list, --replication-factor and "
            "--balance, or leave out --leaders-only."
        )


def _topics(topic: Sequence[str] | None, topics_file: str | None) -> frozenset[str]:
    """The topics that may change; empty: all. Raises UsageError."""
    if topics_file is None:
        return frozenset(topic or ())
    if topic:
        raise UsageError(f"Choose one of --topic and {_TOPICS_FILE}.")
    return frozenset(parse_topics_to_move(read_file(RealDisk(), _TOPICS_FILE, topics_file), topics_file))


def parse_brokers(text: str) -> frozenset[BrokerId]:
    """Parse broker ids such as `1,2,3`. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UsageError(f"--broker-list {text!r} is not a list of broker ids, for example 1,2,3.")
    brokers = [BrokerId(int(part)) for part in parts]
    if len(set(brokers)) < len(brokers):
        raise UsageError(f"--broker-list {text} lists a broker twice.")
    return frozenset(brokers)
