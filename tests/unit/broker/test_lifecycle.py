"""Parts start in the order in which they are added, and close in the reverse order, whatever fails."""

import asyncio

import pytest

from klamm.broker.lifecycle import Lifecycle, NodeStatus, Step
from klamm.model.errors import KlammError
from klamm.sim.loop import SimulatedLoop


class Recorder:
    """Parts that write down what happens to them."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def part(self, name: str, *, start: Exception | None = None, close: Exception | None = None) -> "RecordingPart":
        return RecordingPart(self.calls, name, start, close)


class RecordingPart:
    def __init__(self, calls: list[str], name: str, start: Exception | None, close: Exception | None) -> None:
        self._calls = calls
        self._name = name
        self._start_error = start
        self._close_error = close

    async def start(self) -> None:
        self._calls.append(f"start {self._name}")
        if self._start_error is not None:
            raise self._start_error

    async def close(self) -> None:
        self._calls.append(f"close {self._name}")
        if self._close_error is not None:
            raise self._close_error


async def test_components_of_a_node_close_in_the_reverse_order_of_their_start() -> None:
    recorder, lifecycle = Recorder(), Lifecycle()
    for name in ("session", "logs"):
        lifecycle.add(name, recorder.part(name))
    await lifecycle.start()
    lifecycle.add("server", recorder.part("server"))
    await lifecycle.start()
    assert lifecycle.names == ["session", "logs", "server"]
    await lifecycle.close()
    assert recorder.calls == [
        "start session", "start logs", "start server", "close server", "close logs", "close session",
    ]  # fmt: skip


@pytest.mark.parametrize("error", [KlammError("no session"), OSError("disk"), ZeroDivisionError("bug")])
async def test_a_component_of_a_node_that_fails_to_close_does_not_keep_others_open(error: Exception) -> None:
    recorder, lifecycle = Recorder(), Lifecycle()
    lifecycle.add("logs", recorder.part("logs"))
    lifecycle.add("replicas", recorder.part("replicas", close=error))
    lifecycle.add("server", recorder.part("server"))
    await lifecycle.start()
    recorder.calls.clear()
    await lifecycle.close()
    assert recorder.calls == ["close server", "close replicas", "close logs"]


@pytest.mark.parametrize("error", [KlammError("port taken"), ZeroDivisionError("bug")])
async def test_a_component_of_a_node_that_fails_to_start_closes_all_components_started_so_far(error: Exception) -> None:
    recorder, lifecycle = Recorder(), Lifecycle()
    lifecycle.add("session", recorder.part("session"))
    lifecycle.add("listeners", recorder.part("listeners", start=error))
    lifecycle.add("logs", recorder.part("logs"))
    with pytest.raises(type(error)):
        await lifecycle.start()
    assert recorder.calls == ["start session", "start listeners", "close listeners", "close session"]
    await lifecycle.close()
    assert len(recorder.calls) == 4


def test_a_cancelled_node_start_closes_the_components_already_started() -> None:
    async def main() -> None:
        recorder, lifecycle = Recorder(), Lifecycle()
        lifecycle.add("session", recorder.part("session"))
        lifecycle.add("registration", Step(start=lambda: asyncio.sleep(3600), close=lambda: None))
        starting = asyncio.create_task(lifecycle.start())
        await asyncio.sleep(1)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert recorder.calls == ["start session", "close session"]

    SimulatedLoop().run(main())


async def test_a_node_keeps_its_first_reported_failure_as_the_reason_for_stopping() -> None:
    status = NodeStatus()
    status.report_failure("No log directory is left.")
    status.report_failure("Something later.")
    assert await status.failure == "No log directory is left."
