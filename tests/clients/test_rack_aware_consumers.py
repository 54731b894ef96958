"""Consumers with `client.rack` read from the in-sync follower in their rack (KIP-392)."""

import json
from pathlib import Path

from confluent_kafka import Consumer, Producer
from tests.support.cluster import Cluster

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RECORDS = 200


def test_librdkafka_reads_all_records_from_the_follower_in_its_rack(tmp_path: Path) -> None:
    racks = ["a", "b", "c"]
    with Cluster(tmp_path, 3, racks=racks, overrides={"replica.selector.class": SELECTOR}) as cluster:
        cluster.create_topic("orders", 1, 3)
        leader = cluster.partition_state("orders", 0).leader
        ids = [node.broker_id for node in cluster.nodes]
        follower = next(broker for broker in ids if broker != leader)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for number in range(RECORDS):
            producer.produce("orders", str(number))
        assert producer.flush(30) == 0
        read_from: set[int] = set()

        def on_statistics(text: str) -> None:
            partitions = json.loads(text)["topics"].get("orders", {}).get("partitions", {})
            read_from.update(p["broker"] for name, p in partitions.items() if name == "0")

        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "client.rack": racks[ids.index(follower)],
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "statistics.interval.ms": 100,
                "stats_cb": on_statistics,
            }
        )
        consumer.subscribe(["orders"])
        values: list[bytes | None] = []
        while len(values) < RECORDS or follower not in read_from:
            values += [m.value() for m in consumer.consume(RECORDS, 1) if m.error() is None]
        consumer.close()
    assert values == [str(number).encode() for number in range(RECORDS)]
