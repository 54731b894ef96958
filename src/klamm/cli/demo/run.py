"""The demo; `python -m klamm.cli.demo.run [DIRECTORY] [--no-crash-guard]`, or `make demo [GUARD=off]`.

Exit status 0 only if the table has every acknowledged record, none twice, and every partition is in sync again.
"""

import argparse
import asyncio
import sys
from collections.abc import Coroutine, Iterator, Sequence
from posixpath import abspath, join
from typing import Any, Final, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from klamm.cli.demo.acknowledgements import AcknowledgedRows
from klamm.cli.demo.charts import carrier_charts, leader_chart
from klamm.cli.demo.count import Count, count_table
from klamm.cli.demo.flights import Row, as_rows, read_flights
from klamm.cli.demo.interruptions import Interruption, Interruptions
from klamm.cli.demo.load import Loader
from klamm.cli.demo.observer import ClusterObserver, wait_until
from klamm.cli.demo.pipeline import DemoPipeline
from klamm.cli.demo.progress import LoadProgress
from klamm.cli.demo.report import print_charts, print_report
from klamm.cli.output import print_error, print_line
from klamm.embedded.cluster import ClusterOptions, LocalCluster
from klamm.model.errors import KlammError
from klamm.runtime.main_loop import run_loop
from klamm.runtime.signals import interrupted_by_stop_signals
from klamm.runtime.world import World, real_world

TOPIC: Final = "flights"
PARTITIONS: Final = 6
NODES: Final = 3
GUARD: Final = "klamm.crash.guard"
FLUSH_TIMEOUT_S: Final = 130.0
BURST: Final = 500
SLOW_ROWS_PER_S: Final = 2_500
"""While the cluster is interrupted, so that the load lasts longer than that."""
WAITING_ROWS_PER_S: Final = 500
"""While the first interruption waits for the pipeline."""


class DemoFailed(KlammError):
    pass


class Parts(NamedTuple):
    """What the demo consists of."""

    world: World
    cluster: LocalCluster
    observer: ClusterObserver
    pipeline: DemoPipeline
    acknowledged_rows: AcknowledgedRows


async def demo(cluster: LocalCluster, world: World) -> int:
    """Run the demo on this cluster. Returns the exit status."""
    parts = Parts(
        world,
        cluster,
        ClusterObserver(world, cluster, TOPIC),
        DemoPipeline(world, cluster.directory),
        AcknowledgedRows(world.disk, join(cluster.directory, "demo")),
    )
    flights = read_flights(world.disk)
    print_line(
        f"You will see a pipeline on Spark write {flights.num_rows:,} flights to a table while two of the cluster's "
        f"{NODES} nodes\nare interrupted. At the end the table has every acknowledged flight exactly once, and charts "
        "show the flights\nand who led which partition."
    )
    print_line(f"1. Start ZooKeeper and {NODES} nodes in {cluster.directory}.")
    if GUARD in cluster.options.overrides:
        print_line("   Without crash guards: a killed node is noticed when its ZooKeeper session times out.")
    if found := cluster.nodes_with_data:
        print_line(f"   Using the data of an earlier run ({', '.join(node.name for node in found)}).")
    started = asyncio.get_running_loop().time()
    await _start_cluster(cluster, parts.observer)
    print_line(
        f"   Ready after {asyncio.get_running_loop().time() - started:.1f} s: bootstrap.servers={cluster.bootstrap}"
    )
    await _create_topic(parts)
    run = parts.acknowledged_rows.begin_run()
    parts.pipeline.start(cluster.bootstrap, TOPIC)
    try:
        return await _stream(parts, flights, run)
    finally:
        parts.pipeline.stop()


async def _stream(parts: Parts, flights: pa.Table, run: int) -> int:
    """Load the flights while the pipeline and the interruptions run, then count. Returns the exit status."""
    print_line(f"3. Start the pipeline: klamm pipeline run {parts.pipeline.file}")
    print_line(f"4. Load {flights.num_rows:,} flights with acks=all and idempotence (run {run}).")
    print_line("   Kill the controller's node at one third of the load, stop another node at two thirds.")
    loader = Loader(parts.cluster.bootstrap, TOPIC, flights.num_rows)
    began_ms = parts.world.clock.now_ms()
    try:
        interruptions = await _load_flights(parts, loader, flights, run)
    finally:
        parts.acknowledged_rows.write_run(run, loader.acknowledged)
    print_line("5. Let the pipeline write the rest, and count the rows of its table.")
    ends = await parts.pipeline.catch_up()
    count = count_table(parts.pipeline.table, parts.acknowledged_rows.paths, run, ends)
    print_line("6. Result")
    journals = [node.journal_directory for node in parts.cluster.nodes]
    journal = print_report(parts.world.disk, journals, TOPIC, interruptions, loader, count)
    leaders = leader_chart(journal, TOPIC, began_ms, parts.world.clock.now_ms())
    print_charts(parts.cluster.directory, carrier_charts(count.carriers), leaders)
    print_line(f"Table: {parts.pipeline.table}")
    return await _check_result(parts.observer, loader, count)


async def _start_cluster(cluster: LocalCluster, observer: ClusterObserver) -> None:
    """Start ZooKeeper and the nodes, and wait until every node knows the others and a controller."""
    cluster.start_zookeeper()
    cluster.start_nodes()
    await wait_until("every node knows all other nodes and a controller", observer.is_complete)


async def _create_topic(parts: Parts) -> None:
    """Create the demo's topic, unless it exists from an earlier run."""
    if await parts.observer.has_topic():
        print_line(f"2. The topic {TOPIC} already exists, with {len(parts.acknowledged_rows.runs)} earlier run(s).")
    else:
        parts.acknowledged_rows.remove_all()
        parts.pipeline.remove_data()
        print_line(f"2. Create the topic {TOPIC}: {PARTITIONS} partitions, 3 replicas, min.insync.replicas=2.")
        admin = AdminClient({"bootstrap.servers": parts.cluster.bootstrap, "log_level": 0})
        topic = NewTopic(TOPIC, PARTITIONS, NODES, config={"min.insync.replicas": "2"})
        try:
            admin.create_topics([topic], request_timeout=30)[TOPIC].result(40)
        except KafkaException as error:
            raise DemoFailed(f"The topic {TOPIC} was not created: {error}") from error
    await wait_until("every partition has all its replicas in sync", parts.observer.all_in_sync)


async def _load_flights(parts: Parts, loader: Loader, flights: pa.Table, run: int) -> list[Interruption]:
    """Send every row; start an interruption at one third and at two thirds."""
    total = flights.num_rows
    with LoadProgress(total) as progress:
        interruptions = Interruptions(parts.cluster, parts.observer, parts.world.clock, progress.print_line)
        due: list[tuple[int, Coroutine[Any, Any, Interruption]]] = [
            (total // 3, interruptions.kill_the_controllers_node()),
            (2 * total // 3, interruptions.stop_another_node()),
        ]
        try:
            return await _send_all(loader, as_rows(flights, run), due, parts.pipeline, progress)
        finally:
            for _, never_begun in due:
                never_begun.close()


async def _send_all(
    loader: Loader,
    rows: Iterator[Row],
    due: list[tuple[int, Coroutine[Any, Any, Interruption]]],
    pipeline: DemoPipeline,
    progress: LoadProgress,
) -> list[Interruption]:
    """Send the rows, and begin each interruption of `due` when its number of rows is acknowledged.

    The first one also waits until the pipeline has written rows.
    """
    done: list[Interruption] = []
    active: asyncio.Task[Interruption] | None = None
    row = next(rows, None)
    deadline: float | None = None
    while row is not None or active or due or loader.unanswered:
        if active and active.done():
            done.append(active.result())
            active = None
        is_time = active is None and due and (loader.acknowledged_count >= due[0][0] or row is None)
        if is_time and pipeline.rows:
            active = asyncio.create_task(due.pop(0)[1])
        rows_per_s = SLOW_ROWS_PER_S if active or row is None else WAITING_ROWS_PER_S if is_time else None
        row = _send_some(loader, row, rows, BURST if rows_per_s is None else BURST // 10)
        loader.poll()
        pipeline.poll()
        progress.show(loader.acknowledged_count, pipeline.rows)
        await asyncio.sleep(0 if rows_per_s is None else BURST / 10 / rows_per_s)
        if row is None and active is None and not due:
            deadline = deadline or asyncio.get_running_loop().time() + FLUSH_TIMEOUT_S
            if asyncio.get_running_loop().time() > deadline:
                break
    return done


def _send_some(loader: Loader, row: Row | None, rows: Iterator[Row], count: int) -> Row | None:
    """Send up to `count` rows beginning with `row`. Returns the next row, None at the end."""
    for _ in range(count):
        if row is None or not loader.offer(row):
            return row
        row = next(rows, None)
    return row


async def _check_result(observer: ClusterObserver, loader: Loader, count: Count) -> int:
    """Print what went wrong, if anything. Returns the exit status."""
    problems = list(loader.failures[:3])
    if loader.unanswered:
        problems.append(f"{loader.unanswered} records were not acknowledged or rejected in time")
    if lost := count.own.lost + count.earlier.lost:
        problems.append(f"{lost} acknowledged records are not in the table")
    if twice := count.own.twice + count.earlier.twice:
        problems.append(f"{twice} records are in the table more than once")
    problems += count.differing
    if not await observer.all_in_sync():
        problems.append("some partitions do not have three in-sync replicas again")
    print_line()
    for problem in problems:
        print_error(problem)
    if not problems:
        print_line(
            "The table has every record of the topic exactly once, and every acknowledged one. "
            "Every partition has three in-sync replicas."
        )
    return 1 if problems else 0


def parse_options(arguments: Sequence[str]) -> ClusterOptions:
    """Return the cluster that the command line describes."""
    parser = argparse.ArgumentParser(prog="klamm.cli.demo.run", description="The demo of klamm.")
    parser.add_argument("directory", nargs="?", default="demo-data")
    parser.add_argument(
        "--no-crash-guard", action="store_true", help="run the nodes without crash guards, to compare the gaps"
    )
    chosen = parser.parse_args(arguments)
    overrides = {GUARD: "false"} if chosen.no_crash_guard else {}
    return ClusterOptions(chosen.directory, NODES, first_port=0, zookeeper_port=0, overrides=overrides)


def main() -> None:
    """Run the demo that the command line describes, and exit with its status."""
    options = parse_options(sys.argv[1:])
    try:
        with interrupted_by_stop_signals(), LocalCluster(options, on_killed=print_error) as cluster:
            status = run_loop(demo(cluster, real_world()))
    except KlammError as error:
        print_error(error)
        status = 1
    except KeyboardInterrupt:
        print_line(f"Stopped. The data is in {abspath(options.directory)}.")
        status = 130
    sys.exit(status)


if __name__ == "__main__":
    main()
