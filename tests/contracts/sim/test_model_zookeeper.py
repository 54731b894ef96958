"""The model ZooKeeper against a real one: generated sequences of operations, two clients, every answer compared."""

from itertools import count
from typing import Any

from hypothesis import HealthCheck, given, settings
from tests.support.zookeeper_sequences import of_a_real_one, of_the_model, sequences

from klamm.cli.zookeeper import ZooKeeperServer

_CHROOTS = count()


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(sequence=sequences(1, 25))
def test_both_say_the_same(shared_zookeeper: ZooKeeperServer, sequence: list[Any]) -> None:
    chroot = f"/model-{next(_CHROOTS)}"

    real = of_a_real_one(shared_zookeeper.connect_string, chroot, sequence)

    assert of_the_model(sequence) == real
