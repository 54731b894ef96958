"""A test whose work in the background failed must fail, at the next look and at its end."""

import threading

import pytest
from tests.support.background import Background, in_background


def test_a_failure_in_the_background_fails_the_test_at_the_next_check_and_at_the_end_of_the_block() -> None:
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise RuntimeError("no broker")

    with pytest.raises(AssertionError, match="the producer failed: RuntimeError"), in_background("the producer", fail):
        assert failed.wait(30)
    failing = Background("the producer", fail)
    failed.clear()
    failing.start()
    assert failed.wait(30)
    failing.stop()
    with pytest.raises(AssertionError, match="the producer failed"):
        failing.check()


def test_the_background_goes_on_until_the_end_of_the_block() -> None:
    twice = threading.Event()
    steps = []

    def step() -> None:
        steps.append(1)
        if len(steps) == 2:
            twice.set()

    with in_background("the producer", step) as producer:
        assert twice.wait(30)
        producer.check()
    assert not producer._thread.is_alive()
