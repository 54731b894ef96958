"""Kill a streaming job again and again while records come, then compare its table with the topic."""

import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path

import psutil
from confluent_kafka import OFFSET_END, Consumer, KafkaError, Message, Producer, TopicPartition
from tests.support.background import Background, in_background
from tests.support.cluster import Cluster

from klamm.runtime.processes import Child, spawn, ticks

START_TIMEOUT_S = 180
DRAIN_TIMEOUT_S = 180
COMMIT_TIMEOUT_S = 180
LONGEST_LIFE_S = 6.0
"""A job is killed so long after its query started, at most."""


class StreamKills:
    def __init__(self, cluster: Cluster, topic: str, partitions: int, directory: Path, seed: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._directory = directory
        self._random = random.Random(seed)
        directory.mkdir()

    def kill_driver(self, *options: str) -> str:
        """Start the job and kill it at a random moment; what was killed."""
        job = self._start(*options)
        self._live(job, self._random.uniform(0, LONGEST_LIFE_S))
        job.kill()
        return "driver"

    def kill_worker(self, *options: str) -> str:
        """Start the job, kill one of its Python processes, let it go on for a while, then kill it too."""
        job = self._start(*options)
        self._live(job, self._random.uniform(0, LONGEST_LIFE_S))
        pythons = [
            p for p in psutil.Process(job.pid).children(recursive=True) if "pyspark" in " ".join(command_line(p))
        ]
        workers = [p for p in pythons if p.name().startswith("python")]
        killed = self._random.choice(workers) if workers else None
        if killed is not None:
            killed.kill()
        job.wait(self._random.uniform(0, LONGEST_LIFE_S))  # the query ends where its planner was killed
        job.kill()
        return "worker and driver" if killed else "driver, which had no worker"

    def kill_in_commit(self, commits: str, *options: str) -> str:
        """Start the job, and kill it as soon as its sink has written a commit: transactions are still open then."""
        job = self._start(*options)
        isolation = self._random.choice(("read_committed", "read_uncommitted"))  # the record's own end, or the record
        brokers = {"bootstrap.servers": self._cluster.bootstrap, "group.id": "commits", "fetch.wait.max.ms": 10}
        consumer = Consumer({**brokers, "isolation.level": isolation})
        partitions = consumer.list_topics(commits, timeout=20).topics[commits].partitions
        consumer.assign([TopicPartition(commits, n, OFFSET_END) for n in partitions])
        found = None
        for _ in ticks(COMMIT_TIMEOUT_S):
            if (found := consumer.poll(0.01)) is not None:
                break
        job.kill()
        consumer.close()
        assert found is not None, f"no commit after {COMMIT_TIMEOUT_S} s: {job.log_tail(40)}"
        return "driver in a commit"

    def drain(self, *options: str) -> None:
        """Let the job read what is there."""
        job = self._job("drain", *options)
        status = job.wait(DRAIN_TIMEOUT_S)
        assert status == 0, f"the job ended with {status}: {job.log_tail(40)}"

    def check(self) -> list[str]:
        """What is wrong with the table, in one line for each partition; empty where it has each offset once."""
        job = self._job("check")
        assert job.wait(START_TIMEOUT_S) == 0, job.log_tail(40)
        found = json.loads(job.log_tail(1))
        return [
            line for n in range(self._partitions) if (line := self._wrong(n, found.get(str(n), [0, 0, None, None])))
        ]

    def _wrong(self, partition: int, found: list[int | None]) -> str | None:
        """What is wrong with one partition; None where nothing is."""
        consumer = Consumer({"bootstrap.servers": self._cluster.bootstrap, "group.id": "ends"})
        low, high = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=20)
        consumer.close()
        expected = [high - low, high - low, low, high - 1]
        return None if found == expected else f"{self._topic}-{partition}: {found}, expected {expected}"

    def _start(self, *options: str) -> Child:
        """Start the job, and wait until its query runs."""
        started = self._directory / "started"
        started.unlink(missing_ok=True)
        job = self._job("run", *options)
        for _ in ticks(START_TIMEOUT_S):
            if started.exists():
                return job
            assert job.is_running, job.log_tail(40)
        raise AssertionError(f"no query after {START_TIMEOUT_S} s: {job.log_tail(40)}")

    def _live(self, job: Child, seconds: float) -> None:
        """Let the job run; it may not end by itself."""
        status = job.wait(seconds)
        assert status is None, f"the job ended with {status}: {job.log_tail(60)}"

    def _job(self, mode: str, *options: str) -> Child:
        """Start a process of the job."""
        where = (self._cluster.bootstrap, self._topic, str(self._directory))
        command = [sys.executable, "-m", "tests.support.stream_job", mode, *where, *options]
        return spawn(f"stream-{mode}", command, str(self._directory / f"{mode}.log"))


def command_line(process: psutil.Process) -> list[str]:
    """The command line of a process; nothing for one that has ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


@contextmanager
def producing(bootstrap: str, topic: str, per_second: int) -> Iterator[Background]:
    """Produce records until the end of the block; all are acknowledged then. Fails if the producer fails."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
    sent = count()

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        assert error is None, error

    def produce() -> None:
        for number in islice(sent, per_second // 20):
            producer.produce(topic, b"%d" % number, b"%d" % number, on_delivery=on_delivery)
        producer.poll(0)

    with in_background("the producer", produce) as background:
        yield background
    assert producer.flush(60) == 0
