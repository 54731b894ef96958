"""Clients as command lines: Kafka's Java client of two versions, kafkajs, and three Python libraries.

All have the same commands: `member`, `copy`; those that are not Python also `produce`; see java/JavaClient.java.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support import apache_kafka, kafkajs

JAVA = {"java-3.9": apache_kafka.KAFKA, "java-4": apache_kafka.CLIENT_4}
FOREIGN_CLIENTS = (*JAVA, "kafkajs")
PYTHON_CLIENTS = ("confluent", "kafka-python", "aiokafka")
PYTHON_MODULES = {"member": "tests.support.group_member", "copy": "tests.support.transactional_copier"}
TIMEOUT_S = 240.0
_STARTER = ThreadPoolExecutor(1, "client-starter")  # the kernel ends a client with the thread that started it


def why_missing(library: str) -> str | None:
    """Why the client cannot run here, in one sentence; None if it can."""
    return kafkajs.why_missing() if library == "kafkajs" else apache_kafka.why_missing(JAVA[library])


def command(library: str, *arguments: str) -> Sequence[str]:
    """The command line of the client. Skips the test where the client is missing."""
    if library in PYTHON_CLIENTS:
        return [sys.executable, "-m", PYTHON_MODULES[arguments[0]], library, *arguments[1:]]
    if why := why_missing(library):
        pytest.skip(why)
    if library == "kafkajs":
        return kafkajs.program(*arguments)
    return apache_kafka.program("JavaClient", JAVA[library], *arguments)


def run(library: str, *arguments: str) -> list[dict[str, Any]]:
    """Run the client to its end; the events that it printed."""
    done = subprocess.run(command(library, *arguments), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


class ClientProcess:
    """A client that prints events as JSON lines to a file, until it is killed; on Linux it ends with this process."""

    def __init__(
        self, directory: Path, name: str, words: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.output_path = directory / f"{name}.jsonl"
        self.error_path = directory / f"{name}.log"
        directory.mkdir(parents=True, exist_ok=True)
        with self.output_path.open("wb") as output, self.error_path.open("wb") as errors:
            launcher = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
            self._process = _STARTER.submit(
                subprocess.Popen,
                [*launcher, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=environment,
            ).result()

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self.output_path.read_text().split("\n")[:-1]
        return [event for line in lines if (event := json.loads(line))["event"] == kind]

    @property
    def errors(self) -> str:
        """The end of what it printed to standard error."""
        return self.error_path.read_text(errors="replace")[-1500:]

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL: the client says no goodbye."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
