"""What is counted for each broker, and who has a problem."""

from klamm.cli.admin.client import Address
from klamm.cli.admin.cluster import Broker, Cluster, Partition, Topic
from klamm.cli.admin.refusals import Refusal
from klamm.cli.brokers import LogDir, bytes_in_words, facts
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId

ONE, TWO, GONE = BrokerId(1), BrokerId(2), BrokerId(9)


def test_leaders_preferred_leaders_and_replicas_are_counted_apart() -> None:
    partitions = {0: Partition(TWO, (ONE, TWO), (TWO,)), 1: Partition(TWO, (TWO, GONE), (TWO,))}
    brokers = {ONE: Broker(Address("b1", 1), "a"), TWO: Broker(Address("b2", 2), None)}
    directory = LogDir(ONE, "/d", 1, 10, None, None, "KAFKA_STORAGE_ERROR")
    cluster = Cluster(TWO, brokers, {"t": Topic("t", None, False, partitions)})

    first, second, gone = facts(cluster, {ONE: [directory], TWO: "does not answer"}, frozenset({TWO}))

    assert (first.leads, first.preferred_by, first.holds, first.out_of_sync) == (0, 1, 1, 1)
    assert (second.leads, second.preferred_by, second.holds, second.out_of_sync) == (2, 1, 2, 0)
    assert (first.is_controller, second.is_controller) == (False, True)
    assert (first.is_controller_only, second.is_controller_only) == (False, True)
    assert [b.problem for b in (first, second, gone)] == ["out of use: /d", "does not answer", "not alive"]
    assert (gone.id, gone.address, gone.holds) == (9, None, 1)


def test_sizes_in_words() -> None:
    assert [bytes_in_words(n) for n in (None, 0, 1023, 1536, 5 << 30)] == ["", "0 B", "1023 B", "1.5 KiB", "5.0 GiB"]


def test_a_refusal_is_one_sentence_with_kafkas_code_and_a_remedy() -> None:
    known = Refusal("topic t", ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")

    assert str(known) == (
        "topic t: Topic 't' already exists (TOPIC_ALREADY_EXISTS); choose another name, or say --if-not-exists"
    )
    assert str(Refusal("t-0", ErrorCode.NOT_ENOUGH_REPLICAS, None)) == "t-0: NOT_ENOUGH_REPLICAS"
    assert str(Refusal("t-0", 12345, None)) == "t-0: error 12345"
