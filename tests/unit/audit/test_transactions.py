"""Leaders are asked for open transactions; one that does not answer is named, and the audit goes on."""

from tests.unit.audit.test_findings import healthy, ids

from klamm.audit.snapshot import Snapshot
from klamm.audit.transactions import check_transactions
from klamm.model.brokers import Broker, Endpoint, SecurityProtocol
from klamm.runtime.ports import free_port
from klamm.zk.registrations import Registration


def led_from(protocol: SecurityProtocol) -> Snapshot:
    """Broker 1 leads orders-0, and nobody listens at its address."""
    s = healthy()
    (leader,) = ids(1)
    s.brokers[leader] = Registration(Broker(leader, (Endpoint("L", protocol, "127.0.0.1", free_port()),)))
    return s


def test_the_audit_lists_partitions_of_a_leader_that_does_not_answer_as_not_checked() -> None:
    check = check_transactions(led_from(SecurityProtocol.PLAINTEXT), 5)

    assert check.open == []
    assert list(check.not_checked) == [1]
    assert "127.0.0.1" in check.not_checked[ids(1)[0]]


def test_the_audit_lists_partitions_of_a_leader_without_a_plaintext_listener_as_not_checked() -> None:
    check = check_transactions(led_from(SecurityProtocol.SSL), 5)

    assert check.not_checked == {1: "it has no PLAINTEXT listener"}
