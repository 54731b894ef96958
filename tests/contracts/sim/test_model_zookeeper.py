"""The model ZooKeeper against a real one: generated sequences of operations, two clients, every answer compared."""

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.support.zookeeper_sequences import of_a_real_one, of_the_model, sequences

from klamm.cli.zookeeper import ZooKeeperServer

_CHROOTS = count()


def test_both_say_the_same(shared_zookeeper: ZooKeeperServer, request: pytest.FixtureRequest) -> None:
    many = int(request.config.getoption("--sequences"))

    @settings(
        max_examples=many,
        deadline=None,
        derandomize=many <= 1_000,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(sequence=sequences(1, 25 if many <= 1_000 else 100))
    def same(sequence: list[Any]) -> None:
        chroot = f"/model-{next(_CHROOTS)}"
        real = of_a_real_one(shared_zookeeper.connect_string, chroot, sequence)
        assert of_the_model(sequence) == real

    same()
