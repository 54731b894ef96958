"""A cluster at an old inter-broker protocol version: leaders write ISRs themselves, and everyone learns of it."""

import json
from pathlib import Path

from confluent_kafka import Producer
from kazoo.client import KazooClient
from tests.support.cluster import Cluster


def test_leaders_with_inter_broker_protocol_2_6_write_isr_changes_to_zookeeper(tmp_path: Path) -> None:
    overrides = {"inter.broker.protocol.version": "2.6", "replica.lag.time.max.ms": "3000"}
    cluster = Cluster(tmp_path, 3, overrides=overrides)
    witness = None
    try:
        cluster.start()
        cluster.create_topic("orders", 2, 3)
        witness = KazooClient(cluster.zookeeper.connect_string)
        witness.start()
        znode = json.loads(witness.get("/brokers/topics/orders")[0])
        assert "topic_id" not in znode
        assert json.loads(witness.get("/brokers/ids/1")[0])["version"] == 4
        assert json.loads(witness.get("/feature")[0])["status"] == 0

        gone = next(n for n in cluster.nodes if n.broker_id != cluster.controller_id)
        gone.kill()
        cluster.wait_until_forgotten(gone.broker_id)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
        )
        errors: list[object] = []
        for number in range(100):
            producer.produce(
                "orders", str(number), on_delivery=lambda error, _m: errors.append(error) if error else None
            )
        producer.flush(30)
        assert errors == []

        gone.start()

        cluster.wait_until_in_sync("orders", 2, 3)
        state = json.loads(witness.get("/brokers/topics/orders/partitions/0/state")[0])
        assert sorted(state["isr"]) == [1, 2, 3]
        cluster.wait_until("notices are cleared away", lambda: not witness.get_children("/isr_change_notification"))
    finally:
        if witness is not None:
            witness.stop()
        cluster.kill()
