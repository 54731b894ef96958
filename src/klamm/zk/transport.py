"""Drives a session: moves bytes between it and a connection, calls it in time, and lets coroutines await requests."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from klamm.model.errors import error_text
from klamm.runtime.world import World
from klamm.zk.requests import Request
from klamm.zk.session import Session
from klamm.zk.states import SessionState
from klamm.zk.watches import WatchEvent

R = TypeVar("R", bound=Request[Any])
T = TypeVar("T")


class _ServerConnection(asyncio.Protocol):
    """One connection attempt; after `detach` the session gets nothing from it."""

    def __init__(self, driver: "Driver", attempt: int) -> None:
        self._driver: Driver | None = driver
        self._attempt = attempt
        self._transport: asyncio.Transport | None = None
        self.writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report the new connection to the driver; abort it where the connection is no longer wanted."""
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it
        if self._driver is None:
            transport.abort()
        else:
            self._driver.on_connection_made(self, self._attempt)

    def data_received(self, data: bytes) -> None:
        """Pass the received bytes to the driver."""
        if self._driver is not None:
            self._driver.on_data_received(self._attempt, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the lost connection and its error text to the driver."""
        if self._driver is not None:
            self._driver.on_connection_lost(self._attempt, str(exc) if exc is not None else "")

    def pause_writing(self) -> None:
        """Record that the socket accepts no more bytes for now."""
        self.writable = False

    def resume_writing(self) -> None:
        """Record that the socket accepts bytes again, and let the driver continue."""
        self.writable = True
        if self._driver is not None:
            self._driver.wake()

    def write(self, pieces: list[bytes]) -> None:
        """Send the byte strings in order."""
        assert self._transport is not None
        self._transport.writelines(pieces)

    def detach(self) -> None:
        """Abort the connection, and pass nothing more to the driver."""
        self._driver = None
        if self._transport is not None:
            self._transport.abort()


class Driver:
    """Drives one session: opens its connections, passes bytes on, and calls it when its time comes.

    At most `max_waiting` requests are submitted at a time; further callers wait in order.
    """

    def __init__(
        self,
        world: World,
        session: Session,
        max_waiting: int,
        on_watch: Callable[[WatchEvent], None],
        on_state: Callable[[SessionState], None],
    ) -> None:
        self._network = world.network
        self._loop: asyncio.AbstractEventLoop
        """The loop in which `wake` was last called; it is set before anything else happens."""
        self.session = session
        self._on_watch = on_watch
        self._on_state = on_state
        self._slots = asyncio.Semaphore(max_waiting)
        self.on_latency_ms: Callable[[float], None] | None = None
        """Called with the time in ms from sending each answered request to its answer; must not raise."""
        self._futures: dict[Request[Any], asyncio.Future[None]] = {}
        self._link: _ServerConnection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._attempt = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_running = False
        self._is_woken = False
        self.decided = asyncio.Event()
        """Set when the session is connected for the first time, or has ended."""
        self.ended = asyncio.Event()

    # ---- for coroutines

    async def complete(self, request: R) -> R:
        """Submit a request and wait until it is complete; the result is in `request.code`."""
        future = await self.start(request)
        try:
            await future
        except asyncio.CancelledError:
            request.abandoned = True
            raise
        return request

    async def complete_all(self, requests: Iterable[R]) -> list[R]:
        """Submit requests without waiting for one before the next; returns all when they are complete."""
        started: list[tuple[R, asyncio.Future[None]]] = []
        try:
            for request in requests:
                started.append((request, await self.start(request)))  # noqa: PERF401
            for _, future in started:
                await future
        except asyncio.CancelledError:
            for request, _ in started:
                request.abandoned = True
            raise
        return [request for request, _ in started]

    async def start(self, request: Request[Any]) -> asyncio.Future[None]:
        """Submit a request once the queue has room; the future is done when the request is complete.

        A caller that gives up sets `request.abandoned`.
        """
        await self._slots.acquire()
        return self._submit_with_future(request, self.session.submit)

    async def add_auth(self, request: Request[None]) -> Request[None]:
        """Add credentials to the session, for this connection and later ones."""
        await self._slots.acquire()
        await self._submit_with_future(request, self.session.add_auth)
        return request

    def _submit_with_future(
        self, request: Request[Any], submit: Callable[[Request[Any]], None]
    ) -> asyncio.Future[None]:
        """Submit a request, and return a future that is done when it is complete."""
        future = asyncio.get_running_loop().create_future()
        self._futures[request] = future
        submit(request)
        if self.session.should_send_at_once and not self._is_woken:
            self._send(self._loop.time())
        else:
            self.wake()
        return future

    def run(self) -> None:
        """Start to connect the session; nothing is sent before."""
        self._is_running = True
        self.wake()

    def wake(self) -> None:
        """Advance the session in the next pass of the loop; several calls have the effect of one."""
        if not self._is_woken and (self._is_running or self.session.has_ended):
            self._is_woken = True
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._on_wake)

    # ---- for the connection

    def on_connection_made(self, link: _ServerConnection, attempt: int) -> None:
        """Attach the connection to the session, unless it belongs to an earlier attempt."""
        if attempt != self._attempt:
            link.detach()
            return
        self._link = link
        self.session.connection_made(attempt, self._loop.time())
        self.wake()

    def on_data_received(self, attempt: int, data: bytes) -> None:
        """Pass bytes to the session, and deliver the results at once."""
        session = self.session
        was_quiet = session.is_idle
        session.receive(attempt, data, self._loop.time())
        if was_quiet and session.is_idle:
            self._deliver_outcomes()
        else:
            self._advance_session()

    def on_connection_lost(self, attempt: int, reason: str) -> None:
        """Tell the session that the connection of this attempt ended."""
        self.session.connection_lost(attempt, reason, self._loop.time())
        self.wake()

    # ---- the work of a turn

    def _on_wake(self) -> None:
        """Send queued requests, handle time-outs and report outcomes; called by the loop after `wake`."""
        self._is_woken = False
        self._advance_session()

    def _advance_session(self) -> None:
        """Pass the time to the session, and do what it wants: connect, send, deliver results, set a timer."""
        session, now = self.session, self._loop.time()
        session.tick(now)
        self._update_connection()
        self._send(now)
        self._deliver_outcomes()
        self._set_timer()

    def _send(self, now: float) -> None:
        """Write queued packets while the connection accepts more."""
        link, session = self._link, self.session
        while link is not None and link.writable and session.may_send and (pieces := session.take_outgoing(now)):
            link.write(pieces)

    def _deliver_outcomes(self) -> None:
        """Complete the callers of finished requests, and pass watch events and states to the owner."""
        for outcome in self.session.take_outcomes():
            if isinstance(outcome, Request):
                if outcome.took_s >= 0 and self.on_latency_ms is not None:
                    self.on_latency_ms(outcome.took_s * 1000)
                future = self._futures.pop(outcome, None)
                if future is not None:
                    self._slots.release()
                    if not future.done():
                        future.set_result(None)
            elif isinstance(outcome, WatchEvent):
                self._call_owner(self._on_watch, outcome)
            else:
                self._call_owner(self._on_state, outcome)
                self.decided.set()
                if self.session.has_ended:
                    self.ended.set()

    def _call_owner(self, owner: Callable[[T], None], what: T) -> None:
        """Call a callback of the session's owner; an exception is passed to the event loop's exception handler."""
        try:
            owner(what)
        except Exception as error:
            context = {"message": f"bug: a callback of the ZooKeeper session failed on {what}", "exception": error}
            self._loop.call_exception_handler(context)

    def _update_connection(self) -> None:
        """Open the connection that the session wants, and abort the one that it gave up."""
        session = self.session
        if session.wants_connection and session.attempt == self._attempt:
            return
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        if self._link is not None:
            self._link.detach()
            self._link = None
        if session.wants_connection:
            self._attempt = session.attempt
            self._opening = self._loop.create_task(self._open(session.attempt))

    async def _open(self, attempt: int) -> None:
        """Connect to the session's current server; a failure is reported to the session."""
        server = self.session.server
        link = _ServerConnection(self, attempt)
        try:
            await self._network.connect(lambda: link, server.host, server.port)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that cannot be looked up
            self.on_connection_lost(attempt, error_text(error))
        except asyncio.CancelledError:
            link.detach()
            raise

    def _set_timer(self) -> None:
        """Set a timer for the session's next `wake_at`; an earlier timer is kept."""
        due = self.session.wake_at()
        timer = self._timer
        if timer is not None and (due is None or due < timer.when()):
            timer.cancel()
            timer = self._timer = None
        if timer is None and due is not None:
            self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        """Advance the session when its timer fires."""
        self._timer = None
        self._advance_session()
