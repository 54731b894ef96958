"""Reading a topic into Spark: rows and bytes a second, from real nodes and through the decoder alone.

    python -m benchmarks.spark_read            # one klamm node, 2 million records of 100 B, 400,000 of 1 KB
    python -m benchmarks.spark_read --records 500000 --nodes 3 --codec zstd
    python -m benchmarks.spark_read --decoder-only
    python -m benchmarks.spark_read --log-dirs # the same topics from the nodes' log directories, without brokers
    python -m benchmarks.spark_read --records 10000000 --against kafka  # beside Spark's own connector (4.0.0)

Bytes are those of keys and values. A read writes all seven columns to Spark's `noop` sink; best of `--rounds`. Beside
wall time stands the processor time of the reader (this process, or Spark's JVM and its Python workers, without the
nodes): on a machine that is busy with other things it is the steadier figure.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from tests.support.cluster import Cluster

from benchmarks.spark_process import OFFICIAL, SparkProcess, best_rounds, can_use_official, print_round
from klamm.model.ids import TopicPartition
from klamm.runtime.blocking import RealBlockingWorld
from klamm.spark import session
from klamm.spark.decoder import RecordSelection, decode
from klamm.spark.fetch import Fetched, RangeReader
from klamm.spark.filters import EVERY_ROW
from klamm.spark.options import read_options
from klamm.spark.plan import plan_batch, plan_ranges
from klamm.spark.pool import ClientPool
from klamm.spark.ranges import TaskRanges
from klamm.spark.read_client import read_client
from klamm.spark.schema import FIELDS, Columns
from klamm.spark.tasks import Job, read_task
from klamm.spark.transports import open_transport
from klamm.wire.records import NewRecord, build_batch
from klamm.wire.vectors.batches import read_run
from klamm.wire.vectors.starts import Finder, find_bodies, find_in_a_loop, find_in_lockstep

KEY_BYTES = 10
COLUMNS = tuple(field.name for field in FIELDS)
PARTITIONS = 8
JOB = Path(__file__).parent / "spark_read_job.py"
SMALL_TASKS = 200
SPARK_TASKS = 256
DECODER_BYTES = 8 << 20  # as one fetch gives them


def records(count: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys of ten digits, values of JSON; `size` counts both."""
    padding = "x" * max(0, size - KEY_BYTES - 40)
    for i in range(count):
        yield b"%010d" % i, f'{{"id": {i:10d}, "text": "{padding}"}}'.encode()


class Spent(NamedTuple):
    wall_s: float
    cpu_s: float


def own_cpu_s() -> float:
    return time.process_time()


def spark_cpu_s() -> float:
    """Processor seconds of Spark's JVM and its child processes."""
    java = next(p for p in psutil.Process().children() if any("org.apache.spark" in word for word in p.cmdline()))
    times = [p.cpu_times() for p in (java, *java.children(recursive=True))]
    return float(sum(t.user + t.system + t.children_user + t.children_system for t in times))


def fastest_round(rounds: int, work: Callable[[], object], cpu_s: Callable[[], float] = own_cpu_s) -> Spent:
    """The time and processor time of the round with the least processor time."""
    found = []
    for _ in range(rounds):
        begin, cpu_begin = time.perf_counter(), cpu_s()
        work()
        found.append(Spent(time.perf_counter() - begin, cpu_s() - cpu_begin))
    return min(found, key=lambda spent: spent.cpu_s)


def print_line(what: str, rows: int, size: int, spent: Spent) -> None:
    print(
        f"{what:<46} {rows / spent.wall_s / 1e6:6.2f} M rows/s {rows * size / spent.wall_s / 1e6:6.0f} MB/s"
        f" {rows / spent.cpu_s / 1e6:6.2f} M rows and {rows * size / spent.cpu_s / 1e6:6.0f} MB per CPU s",
        flush=True,
    )


# ---- the decoder alone


def decode_all(data: bytes, wanted: RecordSelection, find: Finder) -> None:
    for _rows in decode(read_run(data), wanted, None, find):
        pass


def measure_decoder(size: int, per_batch: int, rounds: int) -> None:
    one = bytes(build_batch([NewRecord(v, k) for k, v in records(per_batch, size)]))
    batches = DECODER_BYTES // len(one)
    data = b"".join((i * per_batch).to_bytes(8) + one[8:] for i in range(batches))
    ways: dict[str, Finder] = {"as chosen": find_bodies, "lockstep": find_in_lockstep, "loop": find_in_a_loop}
    for name, find in ways.items():
        wanted = RecordSelection(TopicPartition("bench", 0), 0, batches * per_batch, COLUMNS)
        spent = fastest_round(rounds, partial(decode_all, data, wanted, find))
        print_line(f"decoder, {size} B, batches of {len(one) // 1000} kB, {name}", batches * per_batch, size, spent)


# ---- a topic on real nodes


def fill(cluster: Cluster, topic: str, count: int, size: int, codec: str) -> None:
    cluster.create_topic(topic, PARTITIONS, copies=min(3, len(cluster.nodes)))
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "compression.type": codec,
            "batch.size": 16_384,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    source = records(count, size)
    while chunk := list(islice(source, 10_000)):
        for key, value in chunk:
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(120)
    assert not left, f"{left} records were not acknowledged"


def fetch_and_decode(bootstrap: str, topic: str) -> int:
    """Read a topic without Spark in this process; the number of rows."""
    options = read_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    rows = 0
    with read_client(RealBlockingWorld(), options) as view:
        for wanted in plan_ranges(view).ranges:
            for fetched in RangeReader(view, wanted):
                assert isinstance(fetched, Fetched), fetched
                selection = RecordSelection(*wanted[:3], COLUMNS)
                rows += sum(b.num_rows for b in decode(fetched.run, selection, fetched.aborted))
    return rows


def read_files(log_dirs: str, topic: str) -> int:
    """Read a topic from log directories without Spark in this process; the number of rows."""
    options = read_options({"logDirs": log_dirs, "subscribe": topic})
    job, world = Job(options, Columns(COLUMNS, COLUMNS)), RealBlockingWorld()
    with open_transport(world, options) as transport:
        tasks = plan_batch(transport, EVERY_ROW, parallelism=2)
    return sum(rows.num_rows for task in tasks for rows in read_task(world, job, task))


def measure_log_dirs(spark: SparkSession, cluster: Cluster, count: int, size: int, rounds: int) -> None:
    """Measure the topic of `measure_topic` again, from the files of its nodes."""
    name, log_dirs = f"bench-{size}", ",".join(node.log_directory for node in cluster.nodes)
    cluster.wait_until("high watermarks are checkpointed", lambda: read_files(log_dirs, name) == count)
    spent = fastest_round(rounds, lambda: read_files(log_dirs, name))
    print_line(f"read and decode files, {size} B", count, size, spent)

    def source(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("klamm").option("logDirs", log_dirs).options(**options)
        return (reader.schema(schema) if schema else reader).option("subscribe", name).load()

    assert source("offset BIGINT").count() == count
    all_columns = fastest_round(rounds, lambda: source().write.format("noop").mode("overwrite").save(), spark_cpu_s)
    print_line(f"Spark, all columns from files, {size} B", count, size, all_columns)
    counted = fastest_round(rounds, lambda: source("offset BIGINT").count(), spark_cpu_s)
    print_line(f"Spark, count of offsets from files, {size} B", count, size, counted)
    some = f"partition = 3 AND offset >= {count // PARTITIONS // 2} AND offset < {count // PARTITIONS // 2 + 100}"
    found = fastest_round(rounds, lambda: source().filter(some).collect(), spark_cpu_s)
    print(f"{f'Spark, 100 offsets from files, {size} B':<60} {found.wall_s * 1000:6.0f} ms", flush=True)


def measure_small_tasks(cluster: Cluster, name: str) -> None:
    """Measure a task of four small ranges, with new connections and with pooled ones."""
    world, options = (
        RealBlockingWorld(),
        read_options({"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": name}),
    )
    with read_client(world, options) as brokers:
        job = Job(options, Columns(("offset",), ("offset",)))
        task = TaskRanges(tuple(r._replace(end=r.start + 50) for r in plan_ranges(brokers).ranges[:4]))

    def took_ms(pool: ClientPool | None) -> float:
        begin = time.perf_counter()
        assert sum(b.num_rows for b in read_task(world, job, task, pool)) == 200
        return (time.perf_counter() - begin) * 1000

    for what, pool in (("of its own", None), ("kept from the task before", ClientPool())):
        times = sorted(took_ms(pool) for _ in range(SMALL_TASKS))
        median = times[len(times) // 2]
        print(
            f"{f'task of 4 small ranges, connections {what}':<60} {median:6.2f} ms, least {times[0]:.2f} ms", flush=True
        )


def measure_spark_tasks(source: Callable[..., DataFrame], count: int, rounds: int) -> None:
    """Measure what a task of ten records costs in Spark: a job of many such tasks less one of a few."""
    of_each = 10 * SPARK_TASKS // PARTITIONS
    assert count // PARTITIONS > 2 * of_each, "give more records"
    begin = count // PARTITIONS // 2

    def read(tasks: int) -> None:
        few = f"offset >= {begin} AND offset < {begin + of_each * tasks // SPARK_TASKS}"
        found = source("offset BIGINT, partition INT", minPartitions=str(tasks)).filter(few)
        found.write.format("noop").mode("overwrite").save()

    many, few = (fastest_round(rounds, partial(read, tasks), spark_cpu_s) for tasks in (SPARK_TASKS, PARTITIONS))
    wall_ms, cpu_ms = (1_000 * (a - b) / (SPARK_TASKS - PARTITIONS) for a, b in zip(many, few, strict=True))
    print(
        f"{'Spark, a further task of 10 records':<60} {wall_ms:6.2f} ms, {cpu_ms:.2f} ms of processor time; a job of "
        f"{PARTITIONS} of them {few.wall_s * 1_000:.0f} ms",
        flush=True,
    )


def measure_topic(spark: SparkSession, cluster: Cluster, count: int, size: int, codec: str, rounds: int) -> None:
    name = f"bench-{size}"
    fill(cluster, name, count, size, codec)
    what = f"{size} B, {codec}, {len(cluster.nodes)} node(s)"
    assert fetch_and_decode(cluster.bootstrap, name) == count
    measure_small_tasks(cluster, name)
    print_line(
        f"fetch and decode, {what}",
        count,
        size,
        fastest_round(rounds, lambda: fetch_and_decode(cluster.bootstrap, name)),
    )

    def source(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("klamm").option("kafka.bootstrap.servers", cluster.bootstrap).options(**options)
        return (reader.schema(schema) if schema else reader).option("subscribe", name).load()

    assert source("offset BIGINT").count() == count
    all_columns = fastest_round(rounds, lambda: source().write.format("noop").mode("overwrite").save(), spark_cpu_s)
    print_line(f"Spark, all columns, {what}", count, size, all_columns)
    counted = fastest_round(rounds, lambda: source("offset BIGINT").count(), spark_cpu_s)
    print_line(f"Spark, count of offsets, {what}", count, size, counted)
    measure_spark_tasks(source, count, rounds)


def measure_against(cluster: Cluster, name: str, count: int, size: int, rounds: int, directory: Path) -> None:
    """Measure the topic beside Spark's own connector, each in a Spark of its own, in turn."""
    if not can_use_official():
        print("Spark's own connector is left out: without mvn it cannot be fetched", flush=True)
        return
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": name, "startingOffsets": "earliest"}
    readers = [SparkProcess(way, JOB, cluster, {"options": options}, directory) for way in ("klamm", OFFICIAL)]
    found = best_rounds(readers, rounds)
    for way, best in found.items():
        print_round(f"{way}, {size} B", count, size, best)
    share = found["klamm"].spark_s / found[OFFICIAL].spark_s
    print(f"klamm needs {share:.0%} of the processor time of Spark's own connector", flush=True)
    for reader in readers:
        reader.close()


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--records", type=int, default=2_000_000, help="of 100 B; a fifth as many of 1 KB")
    words.add_argument("--nodes", type=int, default=1)
    words.add_argument("--codec", default="none")
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--decoder-only", action="store_true")
    words.add_argument("--against", choices=[OFFICIAL], help="measure Spark's own connector, too")
    words.add_argument("--log-dirs", action="store_true", help="also from files, without brokers")
    given = words.parse_args()
    for size, per_batch in ((100, 137), (100, 9_000), (1_000, 16)):
        measure_decoder(size, per_batch, given.rounds)
    if given.decoder_only:
        return
    with tempfile.TemporaryDirectory() as directory:
        spark = session("klamm benchmark", settings={"spark.driver.memory": "2g"})
        spark.sparkContext.setLogLevel("ERROR")
        with Cluster(Path(directory), given.nodes) as cluster:
            for size, count in ((100, given.records), (1_000, given.records // 5)):
                measure_topic(spark, cluster, count, size, given.codec, given.rounds)
                if given.log_dirs:
                    measure_log_dirs(spark, cluster, count, size, given.rounds)
                if given.against:
                    measure_against(cluster, f"bench-{size}", count, size, given.rounds, Path(directory))
        spark.stop()


if __name__ == "__main__":
    main()
