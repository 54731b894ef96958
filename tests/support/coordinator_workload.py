"""Clients of both coordinators that run during faults, and what they must find afterwards.

Two processes copy a topic in transactions, three consume it as a group, and a reader follows the committed copy. Those
that end are started again.
"""

import random
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from tests.support.copy_history import (
    CommittedCopy,
    CoordinatorVerdict,
    Copied,
    OffsetRead,
    aborted_reads,
    doubled,
    lost,
    lost_commits,
    old_offsets,
    torn,
    unconfirmed,
    withdrawn,
)
from tests.support.foreign_clients import ClientProcess, command
from tests.support.workload import read_all

from klamm.testing.cluster import Cluster

COPIERS = 2
READERS = ("confluent", "confluent", "kafka-python")
COPY_GROUP, READ_GROUP = "copiers", "readers"
ABORT_EVERY = 7
SUPERVISE_S = 0.3
END_TIMEOUT_S = 180.0
PROGRESS_TIMEOUT_S = 60.0


class _Client:
    """A client process and those before it that were killed or ended."""

    def __init__(self, directory: Path, name: str, words: Sequence[str]) -> None:
        self._directory, self._name, self._words = directory, name, words
        self.started: list[ClientProcess] = []
        self.crashes: list[str] = []

    def start(self) -> None:
        self.started.append(ClientProcess(self._directory, f"{self._name}-{len(self.started)}", self._words))

    def restart_if_ended(self) -> None:
        if (status := self.started[-1].exit_status) is not None:
            self.crashes.append(f"{self.started[-1].name} ended with status {status}: {self.started[-1].errors[-300:]}")
            self.start()

    def kill(self) -> None:
        self.started[-1].kill()


class CoordinatorWorkload:
    """`start`, faults, `finish`, `check`; `kill_copier` and `kill_reader` are faults of its own."""

    def __init__(self, directory: Path, cluster: Cluster, source: str, target: str, partitions: int, seed: int) -> None:
        self._cluster, self._source, self._target, self._partitions = cluster, source, target, partitions
        self._random = random.Random(seed)
        copy = ("copy", cluster.bootstrap, COPY_GROUP, source, target)
        self._copiers = [
            _Client(directory, f"copier-{n}", command("confluent", *copy, f"copy-{n}", str(ABORT_EVERY)))
            for n in range(COPIERS)
        ]
        read = ("member", cluster.bootstrap, READ_GROUP, source)
        self._readers = [
            _Client(directory, f"reader-{n}", command(library, *read)) for n, library in enumerate(READERS)
        ]
        self._seen: list[Copied] = []
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._supervise, self._follow)]

    def start(self) -> None:
        for client in self._clients:
            client.start()
        for thread in self._threads:
            thread.start()

    @property
    def crashes(self) -> list[str]:
        """Each client process that ended by itself."""
        return [text for client in self._clients for text in client.crashes]

    def counts(self) -> tuple[int, int]:
        """How many committed copies were read, and how many offsets the group has committed."""
        return len(self._seen), len(self._reader_events("committed"))

    def kill_copier(self) -> str:
        return self._kill(self._random.choice(self._copiers))

    def kill_reader(self) -> str:
        return self._kill(self._random.choice(self._readers))

    def finish(self) -> None:
        """Wait until both groups have everything, as long as they go on, then end all processes."""
        for name in (COPY_GROUP, READ_GROUP):
            group, before = self._cluster.group(name), -1
            while (lag := sum(group.lag().values())) != before:
                before = lag
                with suppress(AssertionError):
                    group.wait_until_caught_up(self._source, PROGRESS_TIMEOUT_S)
                    break
            group.wait_until_caught_up(self._source, END_TIMEOUT_S)
        self.close()

    def close(self) -> None:
        """Kill all processes."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        for client in self._clients:
            client.kill()

    def check(self) -> CoordinatorVerdict:
        """Read both topics and compare them, each other's transactions, and what the group says that it committed."""
        source = read_all(self._cluster.bootstrap, self._source, self._partitions)
        expected = {partition: [found.number for found in records] for partition, records in source.items()}
        copied = read_committed(self._cluster.bootstrap, self._target, self._partitions)
        aborted = {e["transaction"] for client in self._copiers for p in client.started for e in p.events("aborted")}
        committed = self._reader_events("committed")
        ends = {partition: records[-1].offset + 1 for partition, records in source.items() if records}
        return CoordinatorVerdict(
            copied=len(copied),
            transactions=len({record.transaction for record in copied}),
            aborted=len(aborted),
            committed_offsets=len(committed),
            unconfirmed_offsets=len(unconfirmed(self._reader_events("read"), committed)),
            lost=lost(expected, copied),
            duplicated=doubled(expected, copied),
            aborted_reads=[*aborted_reads(aborted, copied), *withdrawn(self._seen, copied)],
            torn=torn(copied),
            lost_commits=lost_commits(committed, self._stored_offsets(), ends),
            skipped=self._skipped({p: [found.offset for found in records] for p, records in source.items()}),
            old_offsets=old_offsets(self._committed_copies(), self._offset_reads()),
        )

    # ---- during the faults

    @property
    def _clients(self) -> list[_Client]:
        return [*self._copiers, *self._readers]

    def _kill(self, client: _Client) -> str:
        """Kill the client's process and start another; its name."""
        with self._lock:
            name = client.started[-1].name
            client.kill()
            client.start()
        return name

    def _supervise(self) -> None:
        """Start clients again that have ended."""
        while not self._stopping.wait(SUPERVISE_S):
            with self._lock:
                for client in self._clients:
                    client.restart_if_ended()

    def _follow(self) -> None:
        """Read the committed copy as it grows."""
        consumer = _committed_reader(self._cluster.bootstrap, self._target, self._partitions)
        try:
            while not self._stopping.is_set():
                self._seen += [copied_record(m) for m in consumer.consume(1_000, 0.3) if m.error() is None]
        finally:
            consumer.close()

    # ---- afterwards

    def _reader_events(self, kind: str) -> list[tuple[int, int]]:
        """Partition and offset of each such event of all members."""
        events = [e for client in self._readers for process in client.started for e in process.events(kind)]
        return [(event["partition"], event["offset"]) for event in events]

    def _committed_copies(self) -> list[CommittedCopy]:
        """What the copiers were told to be committed."""
        return [
            CommittedCopy(process.name, event["transaction"], int(p), first, end, event["ended_s"])
            for client in self._copiers
            for process in client.started
            for event in process.events("copied")
            for p, (first, end) in event["offsets"].items()
        ]

    def _offset_reads(self) -> list[OffsetRead]:
        """The committed offsets from which the copiers went on after an abort or a rebalance."""
        return [
            OffsetRead(process.name, event["why"], int(p), offset, event["asked_s"])
            for client in self._copiers
            for process in client.started
            for event in process.events("rewound")
            for p, offset in event["offsets"].items()
        ]

    def _stored_offsets(self) -> dict[str, dict[int, int]]:
        """What each group has committed, by group and partition."""
        stored = {name: self._cluster.group(name).offsets() for name in (COPY_GROUP, READ_GROUP)}
        return {name: {p.partition: offset for p, offset in offsets.items()} for name, offsets in stored.items()}

    def _skipped(self, offsets: Mapping[int, list[int]]) -> list[str]:
        """Records that no member has read."""
        read = set(self._reader_events("read"))
        return [f"partition {p}: offset {o}" for p, found in offsets.items() for o in found if (p, o) not in read]


# ---- the committed copy


def _committed_reader(bootstrap: str, topic: str, partitions: int) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
    return consumer


def copied_record(message: Message) -> Copied:
    headers: dict[str, bytes] = dict(message.headers() or [])  # type: ignore[arg-type]  # bytes, as they were written
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    number = int(bytes(message.value() or b"0"))
    return Copied(partition, offset, number, headers["transaction"].decode(), int(headers["records"]))


def read_committed(bootstrap: str, topic: str, partitions: int) -> list[Copied]:
    """All committed records. Raises AssertionError where a transaction stays open."""
    consumer = _committed_reader(bootstrap, topic, partitions)
    found: list[Copied] = []
    waiting = set(range(partitions))
    deadline = time.monotonic() + END_TIMEOUT_S
    try:
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in waiting}
        while waiting and time.monotonic() < deadline:
            for message in consumer.consume(10_000, 0.5):
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error is None:
                    found.append(copied_record(message))
                elif (
                    error.code() == KafkaError._PARTITION_EOF and offset is not None and offset >= ends[partition or 0]
                ):
                    waiting.discard(partition or 0)
    finally:
        consumer.close()
    assert not waiting, f"partitions {sorted(waiting)} of {topic} have an open transaction: {topic} ends at {ends}"
    return found
