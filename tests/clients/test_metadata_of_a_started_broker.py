"""A broker that has just registered does not deny topics that its controller has not described to it yet."""

import threading
from pathlib import Path

from confluent_kafka.admin import TopicMetadata
from tests.support.cluster import Cluster

WRONG_ANSWER_S = 1.0
"""Time enough for a wrong answer, which comes in a few milliseconds."""


def test_metadata_of_a_started_broker_waits_for_the_first_update_metadata(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2) as cluster:
        cluster.create_topic("orders", 1, 2)
        controller = cluster.node(cluster.controller_id)
        (other,) = (node for node in cluster.nodes if node is not controller)
        other.stop()
        controller.pause()
        other.start()
        other.wait_until_listening()
        answers: list[TopicMetadata] = []

        def ask() -> None:
            answers.append(cluster.admin(other).list_topics("orders", timeout=30).topics["orders"])

        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(WRONG_ANSWER_S)
        controller.resume()
        asking.join()
    (answer,) = answers
    assert answer.error is None
    assert list(answer.partitions) == [0]
