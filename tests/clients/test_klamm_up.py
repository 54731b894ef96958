"""`klamm up` for a new user: it says how to connect, keeps its data, and leaves no process behind."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile
from pathlib import Path

import psutil
import pytest
from tests.support.ended_processes import all_gone
from tests.support.records import check_each_record_once, make_records
from tests.support.witnesses import Confluent

import klamm
from klamm.runtime.processes import ticks

READY = "Press Ctrl-C to stop"
TOPIC = "kept"


def _listen_to_ctrl_c() -> None:
    """A shell starts background jobs, and this test may be one, with SIGINT ignored; children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Up:
    """A running `klamm up`, seen as its user sees it: what it prints."""

    def __init__(self, directory: Path) -> None:
        self._output = directory.parent / "output"
        words = ["up", "--nodes", "2", "--data", str(directory), "--port", "0", "--zookeeper-port", "0"]
        with open(self._output, "w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "klamm", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_listen_to_ctrl_c,
            )

    @property
    def words(self) -> str:
        """The output of the command so far."""
        return self._output.read_text()

    @property
    def bootstrap(self) -> str:
        found = re.search(r"bootstrap\.servers=(\S+)", self.words)
        assert found, self.words
        return found[1]

    def wait_until_ready(self) -> None:
        for _ in ticks(60, 0.1):
            if READY in self.words:
                return
            assert self.process.poll() is None, self.words
        raise AssertionError(self.words)

    def descendants(self) -> list[psutil.Process]:
        found: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        return found


@contextmanager
def up(directory: Path) -> Iterator[Up]:
    running = Up(directory)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def test_klamm_up_keeps_the_clusters_data_for_the_next_klamm_up(tmp_path: Path) -> None:
    records = make_records(500)
    client = Confluent()
    with up(tmp_path / "data") as first:
        first.wait_until_ready()
        assert "Using the data" not in first.words
        assert "\x1b" not in first.words, "no colours in a pipe"
        client.send(first.bootstrap, TOPIC, records, "none", idempotent=True)
        processes = first.descendants()
        assert len(processes) >= 3

        first.process.send_signal(signal.SIGINT)

        assert first.process.wait(60) == 0, first.words
        assert all_gone(processes)
    with up(tmp_path / "data") as second:
        second.wait_until_ready()
        assert "Using the data of an earlier run" in second.words
        check_each_record_once(records, client.read(second.bootstrap, TOPIC, 1, len(records)))
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(60) == 0, second.words


SOURCES = str(Path(klamm.__file__).parent)


def frames_of_klamm(output: str) -> list[str]:
    """The lines of a traceback from klamm's first on; no code of klamm can protect the interpreter's own start."""
    frames = (line for line in output.splitlines() if line.startswith("  File "))
    return list(dropwhile(lambda line: SOURCES not in line, frames))


@pytest.mark.parametrize("when_s", [0.3, 0.8, 1.5])
def test_klamm_up_interrupted_while_starting_leaves_no_process(tmp_path: Path, when_s: float) -> None:
    with up(tmp_path / "data") as running:
        for _ in ticks(when_s):
            pass
        processes = running.descendants()

        running.process.send_signal(signal.SIGINT)

        running.process.wait(60)
        assert all_gone(processes), running.words
        assert frames_of_klamm(running.words) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_a_killed_klamm_up_leaves_no_process(tmp_path: Path) -> None:
    with up(tmp_path / "data") as running:
        running.wait_until_ready()
        processes = running.descendants()

        running.process.kill()

        assert any(all_gone(processes) for _ in ticks(10))


def test_klamm_up_in_a_directory_used_by_another_klamm_up_is_refused(tmp_path: Path) -> None:
    with up(tmp_path / "data") as running:
        running.wait_until_ready()

        words = [sys.executable, "-m", "klamm", "up", "--data", str(tmp_path / "data"), "--port", "0"]
        second = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

        assert second.returncode == 1
        assert "Another klamm process uses" in second.stderr
