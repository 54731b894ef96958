"""The counts and problems that `klamm brokers` reports for each broker."""

from tests.unit.cli.admin.scripted_brokers import Brokers, run

from klamm.cli.admin.brokers import BrokerFacts, LogDir, broker_facts, format_bytes, read_brokers
from klamm.cli.admin.client import Admin
from klamm.cli.admin.refusals import Refusal
from klamm.model.cluster import Address, Broker, Cluster, Partition, Topic
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.wire.api import ApiKey
from klamm.wire.messages import DescribeConfigsResponse, DescribeLogDirsResponse, MetadataResponseBroker

ONE, TWO, GONE = BrokerId(1), BrokerId(2), BrokerId(9)


def test_klamm_brokers_counts_leaders_preferred_leaders_and_replicas_per_broker() -> None:
    partitions = {0: Partition(TWO, (ONE, TWO), (TWO,)), 1: Partition(TWO, (TWO, GONE), (TWO,))}
    brokers = {ONE: Broker(Address("b1", 1), "a"), TWO: Broker(Address("b2", 2), None)}
    directory = LogDir(ONE, "/d", 1, 10, None, None, "KAFKA_STORAGE_ERROR")
    cluster = Cluster(TWO, brokers, {"t": Topic("t", None, False, partitions)})

    first, second, gone = broker_facts(cluster, {ONE: [directory], TWO: "does not answer"}, frozenset({TWO}))

    assert (first.leads, first.preferred_by, first.holds, first.out_of_sync) == (0, 1, 1, 1)
    assert (second.leads, second.preferred_by, second.holds, second.out_of_sync) == (2, 1, 2, 0)
    assert (first.is_controller, second.is_controller) == (False, True)
    assert (first.is_controller_only, second.is_controller_only) == (False, True)
    assert [b.problem for b in (first, second, gone)] == ["log directory offline: /d", "does not answer", "not alive"]
    assert (gone.id, gone.address, gone.holds) == (9, None, 1)


def test_klamm_brokers_reports_a_broker_that_refuses_connections_at_once() -> None:
    brokers = Brokers(1, 2)
    brokers.down = {"b2"}
    metadata = brokers.metadata()
    metadata.brokers.append(MetadataResponseBroker(2, "b2", 9092))  # registered still
    brokers.answers[ApiKey.METADATA] = lambda _v, _m: metadata
    brokers.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda _v, _m: DescribeLogDirsResponse()
    brokers.answers[ApiKey.DESCRIBE_CONFIGS] = lambda _v, _m: DescribeConfigsResponse()

    async def read_and_time(admin: Admin) -> tuple[list[BrokerFacts], float]:
        found = await read_brokers(admin)
        return found, admin.left_s

    (first, second), left_s = run(brokers, read_and_time, timeout_s=30)

    assert first.problem is None
    assert second.problem == "Broker 2 refuses connections at b2:9092. Check that it is running."
    assert left_s == 30


def test_klamm_brokers_prints_byte_counts_with_binary_units() -> None:
    assert [format_bytes(n) for n in (None, 0, 1023, 1536, 5 << 30)] == ["", "0 B", "1023 B", "1.5 KiB", "5.0 GiB"]


def test_a_request_refused_by_a_broker_is_printed_with_kafkas_error_code_and_a_remedy() -> None:
    known = Refusal("topic t", ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")

    assert str(known) == (
        "topic t: Topic 't' already exists (TOPIC_ALREADY_EXISTS); choose another name, or pass --if-not-exists"
    )
    assert str(Refusal("t-0", ErrorCode.NOT_ENOUGH_REPLICAS, None)) == "t-0: NOT_ENOUGH_REPLICAS"
    assert str(Refusal("t-0", 12345, None)) == "t-0: error code 12345"
