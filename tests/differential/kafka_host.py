"""Several Apache Kafka nodes in one Java process, with access to their state. See tests/support/java/KafkaHost.java."""

import asyncio
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import IO

from tests.support import apache_kafka

from klamm.model.errors import KlammError

JAVA = ("-Xmx1g", "-Xms256m", "-XX:+UseSerialGC", apache_kafka.QUICK_START)


class KafkaHost:
    """A Java process that runs Apache Kafka nodes; each has a name."""

    def __init__(self, lines_in: StreamWriter, lines_out: StreamReader) -> None:
        self._lines_in = lines_in
        self._lines_out = lines_out
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[str]] = {}

    async def ask(self, *words: object) -> str:
        """Send a command to the Java process. Raises KlammError if it fails."""
        number = next(self._numbers)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._lines_in.write(f"{number} {' '.join(map(str, words))}\n".encode())
        return await answer

    async def read_answers(self) -> None:
        """Pass each answer to the caller that waits for it, until the Java process ends."""
        async for line in self._lines_out:
            number, verdict, text = line.decode().rstrip("\n").split(" ", 2)
            answer = self._answers.pop(int(number))
            if answer.done():
                continue
            if verdict == "ok":
                answer.set_result(text)
            else:
                answer.set_exception(KlammError(text))
        for answer in self._answers.values():
            answer.set_exception(KlammError("Apache Kafka's process has ended"))


@asynccontextmanager
async def kafka_host(log: IO[bytes]) -> AsyncIterator[KafkaHost]:
    """`log` takes what Kafka logs."""
    process = await asyncio.create_subprocess_exec(
        *apache_kafka.program("KafkaHost", apache_kafka.KAFKA, options=JAVA), stdin=PIPE, stdout=PIPE, stderr=log
    )
    assert process.stdin is not None
    assert process.stdout is not None
    host = KafkaHost(process.stdin, process.stdout)
    reading = asyncio.create_task(host.read_answers())
    try:
        yield host
    finally:
        process.stdin.close()
        await process.wait()
        await reading
