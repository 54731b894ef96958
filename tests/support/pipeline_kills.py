"""Kill a pipeline of flights again and again while records come, then compare topic, table and dead letters."""

import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from deltalake import DeltaTable
from tests.support.background import Background, in_background
from tests.support.cluster import Cluster
from tests.support.spark import QUICK_START
from tests.support.stream_kills import LONGEST_LIFE_S, command_line

from klamm.cli.demo.flights import as_rows, read_flights
from klamm.runtime.disk import RealDisk
from klamm.runtime.processes import Child, spawn, ticks

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "pipelines" / "flights.yaml"
TOPIC, LETTERS, PARTITIONS = "flights", "flights.dead-letters", 4
TIMEOUT_S = 600
SUBMIT = "--master local[2,8] --driver-memory 1g --conf 'spark.driver.extraJavaOptions={}' pyspark-shell"
"""A killed worker fails its task, which is tried again."""
Place = tuple[int, int]
"""Partition and offset of a record."""


class Flight(NamedTuple):
    key: bytes | None
    value: bytes
    is_broken: bool


class Produced:
    """What producers were told: the place of each acknowledged record, and which of them are broken."""

    def __init__(self) -> None:
        self.all: Counter[Place] = Counter()
        self.broken: Counter[Place] = Counter()
        self.background: Background | None = None

    @property
    def count(self) -> int:
        return self.all.total()

    def check(self) -> None:
        """Raise AssertionError if the producer has failed: nothing new would be read any more."""
        assert self.background is not None
        self.background.check()


def broken_flights(seed: int, share: float = 0.01) -> Iterator[Flight]:
    """All flights, again and again; a share of them is cut, of the wrong type, or does not meet an expectation."""
    dice = random.Random(seed)
    flights = read_flights(RealDisk())
    for run in range(1_000_000):
        for _, key, value in as_rows(flights, run):
            if dice.random() >= share:
                yield Flight(key, value, False)
                continue
            damaged = (
                value[: dice.randrange(len(value))],
                value.replace(b'"row":', b'"row":"x",', 1),
                value.replace(b'"origin":"', b'"origin":"X', 1),
                b"\xff\xfe",
            )
            yield Flight(key, dice.choice(damaged), True)


@contextmanager
def producing(bootstrap: str, flights: Iterator[Flight], per_second: int) -> Iterator[Produced]:
    """Produce flights until the end of the block; all are acknowledged then."""
    produced = Produced()
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})

    def produce() -> None:
        for _ in range(per_second // 20):
            send(producer, next(flights), produced)
        producer.poll(0)

    with in_background("the producer", produce) as produced.background:
        yield produced
    assert producer.flush(60) == 0


def send(producer: Producer, flight: Flight, produced: Produced) -> None:
    """Send one flight; its place is counted when it is acknowledged."""

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        place = (message.partition() or 0, message.offset() or 0)
        produced.all[place] += 1
        if flight.is_broken:
            produced.broken[place] += 1

    producer.produce(TOPIC, flight.value, flight.key, on_delivery=on_delivery)


class PipelineKills:
    def __init__(self, cluster: Cluster, directory: Path, seed: int) -> None:
        self._cluster = cluster
        self._directory = directory
        self._random = random.Random(seed)
        directory.mkdir()
        self._file = directory / "flights.yaml"
        self._file.write_text(EXAMPLE.read_text().replace("127.0.0.1:9092", cluster.bootstrap))

    def kill(self, *, worker: bool) -> str:
        """Run the pipeline, kill one of its Python processes or nothing, then kill it at a random moment."""
        job = self._start()
        job.wait(self._random.uniform(0, LONGEST_LIFE_S))
        killed = None
        if worker:
            processes = psutil.Process(job.pid).children(recursive=True) if job.is_running else []
            workers = [p for p in processes if "pyspark" in " ".join(command_line(p)) and p.name().startswith("python")]
            killed = self._random.choice(workers) if workers else None
            if killed is not None:
                killed.kill()
                job.wait(self._random.uniform(0, LONGEST_LIFE_S))  # the query ends where its planner was killed
        is_over = not job.is_running
        job.kill()
        if is_over and killed is None:
            raise AssertionError(f"the pipeline ended by itself: {job.log_tail(40)}")
        return "driver" if killed is None else "worker and driver"

    def drain(self) -> None:
        """Let the pipeline read what is there."""
        job = self._job("drain", "--available-now")
        status = job.wait(TIMEOUT_S)
        assert status == 0, f"the pipeline ended with {status}: {job.log_tail(40)}"

    def check(self, produced: Produced) -> list[str]:
        """What is wrong; empty where each record is once in the table or, if it is broken, among the dead letters."""
        good = produced.all - produced.broken
        return [
            *_differences("the table", rows_of_table(self._directory / "flights.table"), good),
            *_differences("the dead letters", dead_letters(self._cluster.bootstrap, LETTERS), produced.broken),
        ]

    def _start(self) -> Child:
        """Start the pipeline, and wait until its query starts."""
        status = self._directory / "flights.state" / "status.json"
        status.unlink(missing_ok=True)
        job = self._job("run")
        for _ in ticks(TIMEOUT_S):
            if status.exists():
                return job
            assert job.is_running, job.log_tail(40)
        raise AssertionError(f"no query after {TIMEOUT_S} s: {job.log_tail(40)}")

    def _job(self, name: str, *options: str) -> Child:
        """Start a process of the pipeline."""
        command = [sys.executable, "-m", "klamm", "pipeline", "run", str(self._file), *options]
        environment = os.environ | {
            "PYSPARK_SUBMIT_ARGS": SUBMIT.format(QUICK_START),
            "PYSPARK_PYTHON": sys.executable,  # else Spark, whose master is chosen, takes the first python3 on the path
        }
        return spawn(f"pipeline-{name}", command, str(self._directory / f"{name}.log"), environment=environment)


def rows_of_table(path: Path) -> Counter[Place]:
    """The place of each row, as deltalake reads the table."""
    rows = DeltaTable(str(path)).to_pyarrow_table(columns=["partition", "offset"])
    return Counter(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))


def dead_letters(bootstrap: str, topic: str) -> Counter[Place]:
    """The place of each dead letter, as a consumer with read_committed sees them."""
    found: Counter[Place] = Counter()
    for message in committed_records(bootstrap, topic):
        headers = dict(message.headers() or [])
        found[int(headers["klamm.partition"] or b""), int(headers["klamm.offset"] or b"")] += 1
    return found


def committed_records(bootstrap: str, topic: str) -> list[Message]:
    """All records of a topic, as a consumer with read_committed sees them."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "letters",
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
    consumer.assign([TopicPartition(topic, n, 0) for n in partitions])
    found: list[Message] = []
    ended: set[int | None] = set()  # a partition may report its end again after an offset reset
    while len(ended) < len(partitions):
        message = consumer.poll(60)
        assert message is not None, f"no end of {topic} after a minute"
        error = message.error()
        if error is None:
            found.append(message)
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
    consumer.close()
    return found


def _differences(where: str, found: Counter[Place], expected: Counter[Place]) -> list[str]:
    """What is missing and what is there too often."""
    missing, more = expected - found, found - expected
    lines = []
    if missing:
        lines.append(f"{where}: {missing.total()} of {expected.total()} records are missing: {sorted(missing)[:5]}")
    if more:
        lines.append(f"{where}: {more.total()} records too many: {sorted(more)[:5]}")
    return lines
