"""The blocking door on real sockets, without Spark around it."""

import socket

import pytest
from tests.support.kafka_server import serve_brokers
from tests.support.scripted_brokers import ScriptedCluster
from tests.unit.spark.scripts import log, options

from klamm.client.blocking import BlockingConnection, BlockingSettings
from klamm.client.errors import AnswerTimedOut
from klamm.model.cluster import Address
from klamm.model.ids import TopicPartition
from klamm.runtime.blocking import RealBlockingWorld
from klamm.spark.plan import plan_ranges
from klamm.spark.ranges import TaskRanges
from klamm.spark.read_client import read_client
from klamm.spark.schema import Columns
from klamm.spark.tasks import Job, read_task

WORLD = RealBlockingWorld()


def test_the_blocking_client_reads_a_whole_topic_over_real_sockets() -> None:
    with serve_brokers(ScriptedCluster({TopicPartition("orders", 0): log(0, 5_000, leader=2)})) as bootstrap:
        given = options(kafka__bootstrap__servers=bootstrap, kafka__max__partition__fetch__bytes="20000")
        with read_client(WORLD, given) as cluster:
            (everything,) = plan_ranges(cluster).ranges
        job = Job(given, Columns(("offset",), ("offset",)))
        rows = sum(b.num_rows for b in read_task(WORLD, job, TaskRanges((everything,))))

    assert rows == 5_000


def test_a_request_to_a_server_that_never_answers_fails_with_a_timeout() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(AnswerTimedOut, match="no response to API_VERSIONS v3"),
    ):
        BlockingConnection(WORLD, Address(*silent.getsockname()), BlockingSettings("test", 1.0, 0.1))


def test_the_runtime_of_the_blocking_client_can_sleep_and_report_the_processor_count() -> None:
    before = WORLD.now_s()
    WORLD.sleep(0.001)

    assert WORLD.now_s() > before
    assert WORLD.processors() >= 1
