"""The demo; `python -m klamm.cli.demo.run [DIRECTORY]`, or `make demo`.

Exit status 0 only if no acknowledged record is lost, no record is duplicated, and every partition is in sync again.
"""

import asyncio
import sys
from collections.abc import Coroutine, Iterator
from posixpath import abspath, join
from typing import Any, Final

import msgspec
import pyarrow as pa
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from klamm.cli.demo.acknowledgements import AcknowledgedRows
from klamm.cli.demo.flights import Row, as_rows, read_flights
from klamm.cli.demo.interruptions import Interruption, Interruptions
from klamm.cli.demo.load import Loader
from klamm.cli.demo.observer import ClusterObserver, wait_until
from klamm.cli.demo.progress import LoadProgress
from klamm.cli.demo.report import print_report
from klamm.cli.demo.tables import Count, Task
from klamm.cli.output import print_error, print_line
from klamm.embedded.cluster import ClusterOptions, LocalCluster
from klamm.model.errors import KlammError
from klamm.runtime.main_loop import run_loop
from klamm.runtime.processes import Child, python, spawn
from klamm.runtime.signals import interrupted_by_stop_signals
from klamm.runtime.world import World, real_world

TOPIC: Final = "flights"
PARTITIONS: Final = 6
NODES: Final = 3
FLUSH_TIMEOUT_S: Final = 130.0
SPARK_TIMEOUT_S: Final = 600.0
BURST: Final = 500
SLOW_ROWS_PER_S: Final = 2_500  # while the cluster is interrupted, so that the load lasts longer than that


class DemoFailed(KlammError):
    pass


async def demo(cluster: LocalCluster, world: World) -> int:
    """Run the demo on this cluster. Returns the exit status."""
    acknowledged_rows = AcknowledgedRows(world.disk, join(cluster.directory, "demo"))
    print_line(f"1. Start ZooKeeper and {NODES} nodes in {cluster.directory}.")
    if found := cluster.nodes_with_data:
        print_line(f"   Using the data of an earlier run ({', '.join(node.name for node in found)}).")
    started = asyncio.get_running_loop().time()
    observer = ClusterObserver(world, cluster, TOPIC)
    await _start_cluster(cluster, observer)
    print_line(
        f"   Ready after {asyncio.get_running_loop().time() - started:.1f} s: bootstrap.servers={cluster.bootstrap}"
    )
    await _create_topic(cluster, observer, acknowledged_rows)
    run = acknowledged_rows.begin_run()
    flights = read_flights(world.disk)
    print_line(f"3. Load {flights.num_rows:,} flights with acks=all and idempotence (run {run}).")
    print_line("4. Kill the controller's node at one third of the load, stop another node at two thirds.")
    loader = Loader(cluster.bootstrap, TOPIC, flights.num_rows)
    try:
        interruptions = await _load_flights(cluster, observer, world, loader, flights, run)
    finally:
        acknowledged_rows.write_run(run, loader.acknowledged)
    print_line("5. Read the topic with Spark.")
    task = Task(cluster.bootstrap, TOPIC, run, acknowledged_rows.paths, join(cluster.directory, "tables"))
    count = await _read_with_spark(cluster, world, task)
    print_line("6. Result")
    journals = [node.journal_directory for node in cluster.nodes]
    print_report(world.disk, journals, TOPIC, interruptions, loader, count)
    return await _check_result(observer, loader, count)


async def _start_cluster(cluster: LocalCluster, observer: ClusterObserver) -> None:
    """Start ZooKeeper and the nodes, and wait until every node knows the others and a controller."""
    cluster.start_zookeeper()
    cluster.start_nodes()
    await wait_until("every node knows all other nodes and a controller", observer.is_complete)


async def _create_topic(cluster: LocalCluster, observer: ClusterObserver, acknowledged_rows: AcknowledgedRows) -> None:
    """Create the demo's topic, unless it exists from an earlier run."""
    if await observer.has_topic():
        print_line(f"2. The topic {TOPIC} already exists, with {len(acknowledged_rows.runs)} earlier run(s).")
    else:
        acknowledged_rows.remove_all()
        print_line(f"2. Create the topic {TOPIC}: {PARTITIONS} partitions, 3 replicas, min.insync.replicas=2.")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic(TOPIC, PARTITIONS, NODES, config={"min.insync.replicas": "2"})
        try:
            admin.create_topics([topic], request_timeout=30)[TOPIC].result(40)
        except KafkaException as error:
            raise DemoFailed(f"The topic {TOPIC} was not created: {error}") from error
    await wait_until("every partition has all its replicas in sync", observer.all_in_sync)


async def _load_flights(
    cluster: LocalCluster, observer: ClusterObserver, world: World, loader: Loader, flights: pa.Table, run: int
) -> list[Interruption]:
    """Send every row; start an interruption at one third and at two thirds."""
    total = flights.num_rows
    with LoadProgress(total) as progress:
        interruptions = Interruptions(cluster, observer, world.clock, progress.print_line)
        due: list[tuple[int, Coroutine[Any, Any, Interruption]]] = [
            (total // 3, interruptions.kill_the_controllers_node()),
            (2 * total // 3, interruptions.stop_another_node()),
        ]
        try:
            return await _send_all(loader, as_rows(flights, run), due, progress)
        finally:
            for _, never_begun in due:
                never_begun.close()


async def _send_all(
    loader: Loader,
    rows: Iterator[Row],
    due: list[tuple[int, Coroutine[Any, Any, Interruption]]],
    progress: LoadProgress,
) -> list[Interruption]:
    """Send the rows, and begin each interruption of `due` when its number of rows is acknowledged."""
    done: list[Interruption] = []
    active: asyncio.Task[Interruption] | None = None
    row = next(rows, None)
    deadline: float | None = None
    while row is not None or active or loader.unanswered:
        if active and active.done():
            done.append(active.result())
            active = None
        if active is None and due and loader.acknowledged_count >= due[0][0]:
            active = asyncio.create_task(due.pop(0)[1])
        row = _send_some(loader, row, rows, BURST // 10 if active else BURST)
        loader.poll()
        progress.show(loader.acknowledged_count)
        await asyncio.sleep(BURST / 10 / SLOW_ROWS_PER_S if active or row is None else 0)
        if row is None and active is None:
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


async def _read_with_spark(cluster: LocalCluster, world: World, task: Task) -> Count:
    """Run the Spark part in its own process, and return its counts."""
    words = [python(), "-m", "klamm.cli.demo.tables", msgspec.json.encode(task).decode()]
    path = join(cluster.directory, "demo", "spark.log")
    world.disk.write_atomically(path, b"")
    child = spawn("spark", words, path)
    try:
        return await _wait_for_count(child, world)
    finally:
        child.kill()


async def _wait_for_count(child: Child, world: World) -> Count:
    """Wait for the Spark process, and return the counts that it prints. Raises DemoFailed."""
    for _ in range(int(SPARK_TIMEOUT_S * 10)):
        if not child.is_running:
            break
        await asyncio.sleep(0.1)
    lines = world.disk.read(child.log_path).splitlines()
    if child.exit_status != 0 or not lines:
        raise DemoFailed(f"Spark did not read the topic. Last lines of {child.log_path}:\n{child.log_tail(15)}")
    return msgspec.json.decode(lines[-1], type=Count)


async def _check_result(observer: ClusterObserver, loader: Loader, count: Count) -> int:
    """Print what went wrong, if anything. Returns the exit status."""
    problems = list(loader.failures[:3])
    if loader.unanswered:
        problems.append(f"{loader.unanswered} records were not acknowledged or rejected in time")
    if lost := count.lost + count.earlier_lost:
        problems.append(f"{lost} acknowledged records are lost")
    if twice := count.twice + count.earlier_twice:
        problems.append(f"{twice} records are duplicated")
    if not await observer.all_in_sync():
        problems.append("some partitions do not have three in-sync replicas again")
    print_line()
    for problem in problems:
        print_error(problem)
    if not problems:
        print_line("No record lost, no duplicates, every partition has three in-sync replicas.")
    return 1 if problems else 0


def main() -> None:
    """Run the demo in the directory given as argument, and exit with its status."""
    directory = sys.argv[1] if len(sys.argv) > 1 else "demo-data"
    options = ClusterOptions(directory, NODES, first_port=0, zookeeper_port=0)
    try:
        with interrupted_by_stop_signals(), LocalCluster(options, on_killed=print_error) as cluster:
            status = run_loop(demo(cluster, real_world()))
    except KlammError as error:
        print_error(error)
        status = 1
    except KeyboardInterrupt:
        print_line(f"Stopped. The data is in {abspath(directory)}.")
        status = 130
    sys.exit(status)


if __name__ == "__main__":
    main()
