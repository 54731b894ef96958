"""How fast messages are encoded and decoded, on one core: `python benchmarks/wire.py`.

Partition states of control requests (what a controller sends and a broker reads by the hundred thousand), and whole
Produce and Fetch messages with few partitions (what every client request costs). The best of several runs.
"""

import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial

from klamm.wire import messages as m
from klamm.wire.codec import WireMessage, join_small

PARTITIONS = 20_000
RUNS = 7


def best_seconds(call: Callable[[], object], times: int = 1) -> float:
    def once() -> float:
        start = time.process_time()
        for _ in range(times):
            call()
        return (time.process_time() - start) / times

    return min(once() for _ in range(RUNS))


def leader_and_isr(per_topic: int, ragged: bool) -> m.LeaderAndIsrRequest:
    dice = random.Random(1)
    topics = [
        m.LeaderAndIsrTopicState(
            f"topic-{t}",
            uuid.UUID(int=t + 2),
            [
                m.LeaderAndIsrPartitionState(
                    partition_index=p,
                    controller_epoch=7,
                    leader=p % 6,
                    leader_epoch=p,
                    isr=(1, 2) if ragged and dice.random() < 0.5 else (1, 2, 3),
                    partition_epoch=p,
                    replicas=(1, 2, 3),
                )
                for p in range(per_topic)
            ],
        )
        for t in range(PARTITIONS // per_topic)
    ]
    return m.LeaderAndIsrRequest(1, False, 7, 99, 0, [], topics, [m.LeaderAndIsrLiveLeader(1, "host", 9092)])


def update_metadata(per_topic: int, ragged: bool) -> m.UpdateMetadataRequest:
    dice = random.Random(1)
    topics = [
        m.UpdateMetadataTopicState(
            f"topic-{t}",
            uuid.UUID(int=t + 2),
            [
                m.UpdateMetadataPartitionState(
                    partition_index=p,
                    controller_epoch=7,
                    leader=p % 6,
                    leader_epoch=p,
                    isr=(1, 2) if ragged and dice.random() < 0.5 else (1, 2, 3),
                    zk_version=p,
                    replicas=(1, 2, 3),
                )
                for p in range(per_topic)
            ],
        )
        for t in range(PARTITIONS // per_topic)
    ]
    return m.UpdateMetadataRequest(controller_id=1, controller_epoch=7, broker_epoch=99, topic_states=topics)


def control_requests() -> None:
    print(f"{'partition states a second, thousands':48} encode  decode")
    for make, version in ((leader_and_isr, 7), (update_metadata, 8), (leader_and_isr, 2), (update_metadata, 5)):
        for per_topic, ragged in ((100, False), (10, False), (100, True)):
            message: WireMessage = make(per_topic, ragged)
            wire = message.encode(version)
            encode = PARTITIONS / best_seconds(partial(message.encode, version))
            decode = PARTITIONS / best_seconds(partial(type(message).decode, wire, version))
            shape = "ISRs of two lengths" if ragged else "one shape"
            name = f"{type(message).__name__} v{version}, {per_topic} a topic, {shape}"
            print(f"{name:48} {encode / 1000:6.0f}  {decode / 1000:6.0f}")


def encode_and_join(message: WireMessage, version: int) -> object:
    return join_small(message.encode_pieces(version))


def client_requests() -> None:
    print(f"\n{'one message, microseconds':48} encode  decode")
    records = bytes(16_384)
    produce = m.ProduceRequest(None, -1, 30_000, [m.TopicProduceData("flights", [m.PartitionProduceData(0, records)])])
    produced = m.ProduceResponse([m.TopicProduceResponse("flights", [m.PartitionProduceResponse(0, 0, 5)])])
    topic_id = uuid.UUID(int=77)
    fetch = m.FetchRequest(max_wait_ms=500, topics=[m.FetchTopic("", topic_id, [m.FetchPartition(0, 1, 5)])])
    nothing_new = m.FetchRequest(max_wait_ms=500, session_id=5, session_epoch=9)
    answer = m.FetchResponsePartitionData(0, 0, 5, 5, 0, records=records)
    fetched = m.FetchResponse(responses=[m.FetchableTopicResponse("", topic_id, [answer])])
    many = [m.MetadataResponsePartition(0, p, 1, 1, (1, 2, 3), (1, 2, 3)) for p in range(1000)]
    metadata = m.MetadataResponse(topics=[m.MetadataResponseTopic(0, "flights", topic_id, False, many)])
    for message, version, name in (
        (produce, 11, "ProduceRequest v11, 1 partition"),
        (produced, 11, "ProduceResponse v11, 1 partition"),
        (fetch, 17, "FetchRequest v17, 1 partition"),
        (nothing_new, 17, "FetchRequest v17, session, nothing new"),
        (fetched, 17, "FetchResponse v17, 1 partition"),
        (m.HeartbeatRequest("group", 1, "member"), 4, "HeartbeatRequest v4"),
        (metadata, 12, "MetadataResponse v12, 1000 partitions"),
    ):
        wire = message.encode(version)
        encode = best_seconds(partial(encode_and_join, message, version), 1000)
        decode = best_seconds(partial(type(message).decode, wire, version), 1000)
        print(f"{name:48} {encode * 1e6:6.1f}  {decode * 1e6:6.1f}")


def import_time() -> None:
    program = "import time; t = time.perf_counter(); import klamm.wire.api; print(time.perf_counter() - t)"
    runs = [float(subprocess.check_output([sys.executable, "-c", program])) for _ in range(5)]
    print(f"\nimport of every message: {min(runs) * 1000:.0f} ms")


if __name__ == "__main__":
    control_requests()
    client_requests()
    import_time()
