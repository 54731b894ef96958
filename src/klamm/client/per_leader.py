"""At most one request in flight at each leader, and a pause for partitions that failed: for readers and producers.

Source: the in-flight checks of Sender.java and Fetcher.java, with one request per broker.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable

from klamm.client.asynchronous import AsyncClient
from klamm.client.backoff import Backoff
from klamm.client.errors import RetriableError
from klamm.model.cluster import Address
from klamm.model.ids import TopicPartition

Ready = Callable[[], Iterable[TopicPartition]]
"""The partitions that have something to be sent or asked for."""
Send = Callable[[Address, Collection[TopicPartition]], Awaitable[None]]
"""Does the work of these partitions at their leader; it calls `retry` or `succeeded` for each."""


class PerLeader:
    """`run` it in a task, `notify` it when partitions become ready, `close` it."""

    def __init__(self, client: AsyncClient, ready: Ready, send: Send, what: str, timeout_s: float) -> None:
        """`timeout_s`: how long a partition may fail before `run` raises Unreachable; `what` is done, for its text."""
        self._client = client
        self._ready = ready
        self._send = send
        self._what = what
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._requests: dict[asyncio.Task[None], Address] = {}
        self._in_flight: set[TopicPartition] = set()
        self._retries: dict[TopicPartition, Backoff] = {}
        self._not_before: dict[TopicPartition, float] = {}

    def notify(self) -> None:
        """Make `run` check again which partitions are ready."""
        self._changed.set()

    def succeeded(self, partition: TopicPartition) -> None:
        """The partition's work made progress: its next failure begins a new time limit."""
        self._retries.pop(partition, None)

    def retry(self, partition: TopicPartition, error: Exception) -> None:
        """Look up the partition's leader again, after a pause. Raises Unreachable where it failed for too long."""
        self._client.cluster.forget_leader(partition)
        backoff = self._retries.setdefault(partition, Backoff(self._loop.time, self._timeout_s))
        self._not_before[partition] = self._loop.time() + backoff.next_wait_s(f"{self._what} {partition}", error)

    async def run(self) -> None:
        """Keep a request in flight at each leader of a ready partition; never returns. Raises what `send` raises."""
        while True:
            self._changed.clear()
            await self._start_requests()
            await self._wait_for_change()
            for request in [task for task in self._requests if task.done()]:
                del self._requests[request]
                request.result()

    async def close(self) -> None:
        """Cancel the requests in flight."""
        for request in self._requests:
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)

    async def _wait_for_change(self) -> None:
        """Wait until a request ends, a pause is over, or someone notifies."""
        pauses = self._not_before.values()
        try:
            async with asyncio.timeout(max(0.0, min(pauses) - self._loop.time()) if pauses else None):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _start_requests(self) -> None:
        """Start a request at each leader that has none in flight."""
        now_s = self._loop.time()
        self._not_before = {p: at_s for p, at_s in self._not_before.items() if at_s > now_s}
        idle = [p for p in self._ready() if p not in self._in_flight and p not in self._not_before]
        if not idle:
            return
        try:
            leaders = await self._client.run(self._client.cluster.leaders(idle))
        except RetriableError as error:
            for partition in idle:
                self.retry(partition, error)
            return
        busy = set(self._requests.values())
        groups: defaultdict[Address, list[TopicPartition]] = defaultdict(list)
        for partition in idle:
            if partition not in leaders:
                self.retry(partition, RetriableError(self._client.cluster.no_leader_reason(partition)))
            elif leaders[partition] not in busy:
                groups[leaders[partition]].append(partition)
        for address, partitions in groups.items():
            self._in_flight.update(partitions)
            request = self._loop.create_task(self._send_and_release(address, partitions))
            self._requests[request] = address
            request.add_done_callback(lambda _request: self._changed.set())

    async def _send_and_release(self, address: Address, partitions: Collection[TopicPartition]) -> None:
        """Send the request for these partitions to their leader, and allow the next one for them once it ends."""
        try:
            await self._send(address, partitions)
        finally:
            self._in_flight.difference_update(partitions)
