"""Groups and transactions on klamm and on Apache Kafka 3.9.1, in one run: joins, commits, failover, transactions.

    python -m benchmarks.coordinators [--only commits joins] [--members 100] [--commits 1000000] [--producers 100]
                                      [--without-guard] [--alone] [--json FILE]

Three nodes each, default configs but for the number of partitions of the internal topics. The groups are driven by
klamm's client on both systems, so that both pay the same for it; transactions by librdkafka. The other system does not
run meanwhile. How long a load holds the event loop, `benchmarks.coordinator_load` measures.
"""

import argparse
import asyncio
import json
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from rich.console import Console
from rich.table import Table
from tests.support import apache_kafka
from tests.support.cluster import Cluster

from benchmarks.side_by_side import Measurement
from klamm.client.asynchronous import AsyncClient, AsyncSettings
from klamm.client.errors import ConnectionLost, RetriableError
from klamm.client.routing import CoordinatorType, coordinator
from klamm.client.versions import Request
from klamm.embedded.nodes import Command, klamm_node
from klamm.model.cluster import Address, parse_addresses
from klamm.model.errors import ErrorCode
from klamm.runtime.world import real_world
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

TOPIC: Final = "orders"
PARTITIONS: Final = 1_000
DELAY_MS: Final = 500
OVERRIDES: Final = {
    "group.initial.rebalance.delay.ms": str(DELAY_MS),
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
COMMITS_PER_REQUEST: Final = 1_000
COMMITTERS: Final = 48
OFFSETS_OF_A_MEMBER: Final = 10
"""What each of 100 members that share 1,000 partitions commits in one request."""
COMMIT_SECONDS: Final = 8.0
TRANSACTION_SECONDS: Final = 15.0
RECORDS: Final = 100
"""Records of a transaction."""
PARTS: Final = ("joins", "commits", "transactions", "failover")
ANSWER_S: Final = 60.0
HEARTBEAT_S: Final = 0.05
Figures = dict[tuple[str, str], float]


class Member:
    """A member of a group, with a connection of its own."""

    def __init__(self, client: AsyncClient, group: str, at: Address) -> None:
        self._client, self._group, self._at = client, group, at
        self.id = ""
        self.generation = -1

    async def join(self) -> None:
        """Join until the group is stable in a generation that this member belongs to, with its assignment."""
        while not await self._join_once():
            continue

    async def _join_once(self) -> bool:
        """Join and fetch the assignment once. Returns False where another rebalance began meanwhile."""
        message = JoinGroupRequest(
            group_id=self._group, session_timeout_ms=45_000, rebalance_timeout_ms=60_000, member_id=self.id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription())],
        )  # fmt: skip
        joined = await self._ask(ApiKey.JOIN_GROUP, message)
        self.id = joined.member_id or self.id
        if joined.error_code:
            return False
        self.generation = joined.generation_id
        assignments = shares([m.member_id for m in joined.members]) if joined.leader == self.id else []
        sync = SyncGroupRequest(
            group_id=self._group, generation_id=self.generation, member_id=self.id, protocol_type="consumer",
            protocol_name="range", assignments=assignments,
        )  # fmt: skip
        return not (await self._ask(ApiKey.SYNC_GROUP, sync)).error_code

    async def heartbeat(self) -> int:
        """Send a heartbeat; returns its error code."""
        message = HeartbeatRequest(group_id=self._group, generation_id=self.generation, member_id=self.id)
        return int((await self._ask(ApiKey.HEARTBEAT, message)).error_code)

    async def rejoin(self) -> None:
        """Learn of a rebalance by heartbeats, and join again."""
        while await self.heartbeat() != ErrorCode.REBALANCE_IN_PROGRESS:  # noqa: ASYNC110 - only a heartbeat tells
            await asyncio.sleep(HEARTBEAT_S)
        await self.join()

    async def leave(self) -> None:
        """Leave the group."""
        await self._ask(
            ApiKey.LEAVE_GROUP, LeaveGroupRequest(group_id=self._group, members=[MemberIdentity(member_id=self.id)])
        )

    async def _ask(self, key: ApiKey, message: Any) -> Any:
        return await self._client.ask(self._at, Request(key, message), ANSWER_S)


def subscription() -> bytes:
    """The metadata of a consumer that subscribes to the topic (ConsumerProtocolSubscription v0)."""
    name = TOPIC.encode()
    return struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)


def shares(members: Sequence[str]) -> list[SyncGroupRequestAssignment]:
    """The partitions in equal ranges (ConsumerProtocolAssignment v0)."""
    name, each = TOPIC.encode(), PARTITIONS // len(members)
    found = []
    for i, member in enumerate(members):
        last = PARTITIONS if i == len(members) - 1 else (i + 1) * each
        numbers = range(i * each, last)
        body = struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
        found.append(SyncGroupRequestAssignment(member_id=member, assignment=body + struct.pack(">i", -1)))
    return found


def open_client(bootstrap: str) -> AsyncClient:
    return AsyncClient(real_world(), parse_addresses(bootstrap), AsyncSettings("bench", ANSWER_S))


async def coordinator_of(client: AsyncClient, group: str) -> Address:
    """The group's coordinator, once there is one."""
    while True:
        try:
            return await client.run(coordinator(client.cluster, CoordinatorType.GROUP, group))
        except (RetriableError, ConnectionLost):
            await asyncio.sleep(0.01)


async def timed(work: Awaitable[object]) -> float:
    started = time.monotonic()
    await work
    return time.monotonic() - started


async def measure_joins(bootstrap: str, count: int) -> Figures:
    """A group comes up, and settles again when a member has left."""
    clients = [open_client(bootstrap) for _ in range(count)]
    at = await coordinator_of(clients[0], "joiners")
    members = [Member(client, "joiners", at) for client in clients]
    first = await timed(asyncio.gather(*(m.join() for m in members)))

    async def settle() -> None:
        await members[0].leave()
        await asyncio.gather(*(m.rejoin() for m in members[1:]))

    again = await timed(settle())
    for client in clients:
        client.close()
    return {
        (f"{count} members join over {PARTITIONS:,} partitions ({DELAY_MS} ms of it the initial delay)", "s"): round(
            first, 3
        ),
        ("one leaves, the others are stable again", "s"): round(again, 3),
    }


def commit_request(group: str, numbers: Sequence[int], offset: int) -> Request:
    partitions = [OffsetCommitRequestPartition(partition_index=p, committed_offset=offset) for p in numbers]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
    return Request(ApiKey.OFFSET_COMMIT, OffsetCommitRequest(group_id=group, topics=topics))


async def commit(client: AsyncClient, at: Address, request: Request) -> None:
    answer = await client.ask(at, request, ANSWER_S)
    assert not any(p.error_code for t in answer.topics for p in t.partitions), answer


async def measure_commit_rate(bootstrap: str, offsets: int) -> Figures:
    """Many committers, each sends some offsets at a time and waits for the answer; groups on all three nodes."""
    clients = [open_client(bootstrap) for _ in range(COMMITTERS)]
    at = [await coordinator_of(client, f"committer-{i}") for i, client in enumerate(clients)]
    times: list[float] = []
    ends = time.monotonic() + COMMIT_SECONDS

    async def run(i: int) -> None:
        request = commit_request(f"committer-{i}", range(i * offsets, (i + 1) * offsets), 1)
        while (began := time.monotonic()) < ends:
            await commit(clients[i], at[i], request)
            times.append(time.monotonic() - began)

    await asyncio.gather(*(run(i) for i in range(COMMITTERS)))
    for client in clients:
        client.close()
    what = f"{COMMITTERS} committers, {offsets} offset{'s' * (offsets > 1)} in each request"
    return {
        (what, "commits/s"): round(len(times) * offsets / COMMIT_SECONDS),
        (f"{what}: p99 of a request", "ms"): round(statistics.quantiles(times, n=100)[98] * 1000, 1),
    }


async def measure_failover(cluster: Cluster, commits: int) -> Figures:
    """The coordinator of a partition with many commits is killed: until an offset, and a heartbeat, are answered."""
    group = "killed-0"
    async with open_client(cluster.bootstrap) as client:
        at = await coordinator_of(client, group)
        names = groups_at_partition_of(group)
        chosen = [group, *(next(names) for _ in range(commits // COMMITS_PER_REQUEST - 1))]
        for name in chosen:
            await commit(client, at, commit_request(name, range(COMMITS_PER_REQUEST), 7))
        member = Member(client, group, at)
        await member.join()
        dead = next(n for n in cluster.nodes if n.address == str(at))
        others = ",".join(n.address for n in cluster.nodes if n is not dead)
    dead.kill()
    killed_at = time.monotonic()
    async with open_client(others) as client:
        offset_s, loaded_s, heartbeat_s = await asyncio.gather(
            until_answered(killed_at, lambda: fetch_offset(client, group, at)),
            until_answered(killed_at, lambda: fetch_offset(client, chosen[-1], at)),
            until_answered(killed_at, lambda: heartbeat(client, group, member, at)),
        )
    dead.start()
    dead.wait_until_listening()
    cluster.wait_until_complete()
    say = f"coordinator killed, {len(chosen):,} groups, {commits:,} commits: until"
    return {
        (f"{say} an offset is answered", "s"): round(offset_s, 2),
        (f"{say} the last group's offset is answered", "s"): round(loaded_s, 2),
        (f"{say} a heartbeat is answered", "s"): round(heartbeat_s, 2),
    }


def groups_at_partition_of(group: str) -> Iterator[str]:
    """Names of groups in the same partition of the offsets topic (Utils.abs of the Java hash)."""
    count, wanted, number = int(OVERRIDES["offsets.topic.num.partitions"]), java_hash(group), 0
    while True:
        number += 1
        if java_hash(f"killed-{number}") % count == wanted % count:
            yield f"killed-{number}"


def java_hash(text: str) -> int:
    """The absolute value of Java's hash of ASCII text, as GroupMetadataManager.partitionFor has it."""
    value = 0
    for letter in text.encode():
        value = (31 * value + letter) & 0xFFFFFFFF
    return value & 0x7FFFFFFF if value != 0x80000000 else 0


async def until_answered(since: float, attempt: Callable[[], Awaitable[bool]]) -> float:
    """Seconds from `since` until the attempt succeeds."""
    while True:
        try:
            if await attempt():
                return time.monotonic() - since
        except (RetriableError, ConnectionLost):
            pass
        await asyncio.sleep(0.01)


async def fetch_offset(client: AsyncClient, group: str, dead: Address) -> bool:
    """Whether another broker answers the committed offset of a group."""
    at = await client.run(coordinator(client.cluster, CoordinatorType.GROUP, group))
    if at == dead:
        return False
    asked = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(3,))]
    )
    answer = await client.ask(at, Request(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=[asked])), ANSWER_S)
    found = answer.groups[0]
    if found.error_code:
        return False
    assert found.topics[0].partitions[0].committed_offset == 7, found
    return True


async def heartbeat(client: AsyncClient, group: str, member: Member, dead: Address) -> bool:
    """Whether another broker knows the member, in its generation or in a rebalance."""
    at = await client.run(coordinator(client.cluster, CoordinatorType.GROUP, group))
    if at == dead:
        return False
    moved = Member(client, group, at)
    moved.id, moved.generation = member.id, member.generation
    return await moved.heartbeat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)


def measure_transactions(bootstrap: str, producers: int) -> Figures:
    """Producers commit transactions of `RECORDS` records one after the other, each in a thread."""
    times: list[float] = []
    failures: list[str] = []
    ready = threading.Barrier(producers + 1)
    ends = [0.0]

    def run(i: int) -> None:
        config = {
            "bootstrap.servers": bootstrap, "transactional.id": f"bench-{i}", "linger.ms": 0, "log_level": 0,
            "transaction.timeout.ms": 60_000,
        }  # fmt: skip
        producer = Producer(config)
        producer.init_transactions(120)
        ready.wait()
        try:
            while (began := time.monotonic()) < ends[0]:
                producer.begin_transaction()
                for n in range(RECORDS):
                    producer.produce(TOPIC, b"x" * 100, partition=(i + n) % 6)
                producer.commit_transaction(60)
                times.append(time.monotonic() - began)
        except KafkaException as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(producers)]
    for thread in threads:
        thread.start()
    ends[0] = time.monotonic() + 3600
    ready.wait()
    ends[0] = time.monotonic() + TRANSACTION_SECONDS
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]
    cuts = statistics.quantiles(times, n=100)
    return {
        (f"transactions of {RECORDS} records, {producers} producers", "tx/s"): round(len(times) / TRANSACTION_SECONDS),
        ("p50 of a transaction", "ms"): round(cuts[49] * 1000, 1),
        ("p99 of a transaction", "ms"): round(cuts[98] * 1000, 1),
    }


def measure(command: Command, options: argparse.Namespace) -> Figures:
    """All figures of one system, by name and unit."""
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
        guard = {"klamm.crash.guard": "false"} if options.without_guard else {}
        cluster = Cluster(Path(directory), 3, command=command, overrides={**OVERRIDES, **guard})
        try:
            cluster.start()
            cluster.create_topic(TOPIC, PARTITIONS, 3)
            cluster.wait_until_in_sync(TOPIC, PARTITIONS, 3)
            parts: dict[str, Callable[[], Figures]] = {
                "joins": lambda: asyncio.run(measure_joins(cluster.bootstrap, options.members)),
                "commits": lambda: {
                    **asyncio.run(measure_commit_rate(cluster.bootstrap, 1)),
                    **asyncio.run(measure_commit_rate(cluster.bootstrap, OFFSETS_OF_A_MEMBER)),
                },
                "transactions": lambda: measure_transactions(cluster.bootstrap, options.producers),
                "failover": lambda: asyncio.run(measure_failover(cluster, options.commits)),
            }
            return {key: value for name in options.only or parts for key, value in parts[name]().items()}
        finally:
            cluster.kill()


def print_table(klamm: Figures, kafka: Figures, console: Console) -> list[Measurement]:
    """Print the figures side by side, and return them."""
    table = Table("what", "unit", title="klamm beside Apache Kafka (ratio above 1: klamm is better)")
    for heading in ("klamm", "Apache Kafka", "ratio"):
        table.add_column(heading, justify="right")
    rows = [Measurement(name, unit, value, kafka.get((name, unit), 0.0)) for (name, unit), value in klamm.items()]
    for row in rows:
        table.add_row(row.name, row.unit, f"{row.klamm:,}", f"{row.kafka:,}", f"{row.ratio:.2f}")
    console.print(table)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=100, help="members of the group that comes up")
    parser.add_argument("--commits", type=int, default=1_000_000, help="commits that the new coordinator loads")
    parser.add_argument("--producers", type=int, default=100, help="transactional producers")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure only these")
    parser.add_argument("--without-guard", action="store_true", help="a killed node's session ends with its timeout")
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    console = Console(width=130)
    kafka: Figures = {}
    if not options.alone and (why := apache_kafka.why_missing()):
        console.print(f"Apache Kafka is left out: {why}")
    elif not options.alone:
        console.print(f"Apache Kafka {apache_kafka.VERSION} ...")
        kafka = measure(apache_kafka.broker(apache_kafka.BROKER_JAVA), options)
    console.print("klamm ...")
    rows = print_table(measure(klamm_node, options), kafka, console)
    if options.json:
        Path(options.json).write_text(json.dumps([{**r._asdict(), "ratio": round(r.ratio, 3)} for r in rows], indent=1))


if __name__ == "__main__":
    main()
