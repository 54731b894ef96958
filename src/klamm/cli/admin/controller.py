"""Read the controller, elect another one, and read its request queues and its standbys."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, cast

from prometheus_client.parser import text_string_to_metric_families

from klamm.cli.admin.client import Admin, CannotAsk
from klamm.model.cluster import Address
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.runtime.world import World
from klamm.zk import znodes
from klamm.zk.controller_handover import remove_handover_request, request_handover
from klamm.zk.errors import NodeExists, NoNode, ZkCode, error_of
from klamm.zk.operations import Check, Delete
from klamm.zk.port import ZooKeeperClient

QUEUE_SIZE: Final = "kafka_controller_controllerchannelmanager_queuesize"
QUEUE_TIME: Final = "kafka_controller_controllerchannelmanager_requestrateandqueuetimems"
STANDBY: Final = "klamm_controller_standby_"
ACTIVE: Final = "kafka_controller_kafkacontroller_activecontrollercount"
_MAX_PAGE_BYTES: Final = 64 * 1024 * 1024
_ELECTION_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.1


class ControllerStatus(NamedTuple):
    """The controller in ZooKeeper."""

    controller: BrokerId | None
    epoch: int | None
    since_ms: int | None
    epoch_version: int
    """Version of the epoch znode, which every election writes; `/controller` always has version 0."""


class Queue(NamedTuple):
    """Control requests to one broker that are not answered yet."""

    controller: str
    broker: str
    depth: int
    sent: int
    waited_ms: dict[str, float]
    """Quantile -> how long the oldest change in a request waited until it was sent."""


class Standby(NamedTuple):
    """What a node has in memory for its election."""

    node: str
    """The address of its metrics."""
    state: str
    """`controller`; `current`: it has everything and follows changes; `reading`: for the first time; `none`."""
    partitions: int
    changed_znodes: int
    """Znodes that changed and that the node has not read again yet."""
    lag_ms: int
    """How long ago the oldest of these changes was noted."""


async def read_metadata_controller(admin: Admin) -> tuple[BrokerId | None, Address | None]:
    """Id and address of the controller in the brokers' metadata; None without a controller."""
    await admin.look()
    address = admin.brokers.get(admin.controller)
    return (admin.controller if admin.controller >= 0 else None), address


async def read_controller_status(client: ZooKeeperClient) -> ControllerStatus:
    """Read `/controller` and `/controller_epoch`. Raises MalformedZnode if the epoch is not a number."""
    epoch, epoch_version = None, -1
    try:
        text, epoch_stat = await client.get(znodes.CONTROLLER_EPOCH)
        epoch, epoch_version = znodes.decode_controller_epoch(text), epoch_stat.version
    except NoNode:
        pass  # there has never been a controller
    try:
        content, stat = await client.get(znodes.CONTROLLER)
    except NoNode:
        return ControllerStatus(None, epoch, None, epoch_version)
    registration = znodes.decode_controller(content)
    return ControllerStatus(registration.broker if registration else None, epoch, stat.ctime, epoch_version)


async def reelect(client: ZooKeeperClient, seen: ControllerStatus) -> ControllerStatus:
    """Delete `/controller` to end the term of controller `seen`, and wait for the next controller.

    Raises KlammError if another controller was elected meanwhile. If the answer to the deletion was lost, this call may
    have ended the term itself. Without a controller there is nothing to delete.
    """
    results = await client.multi([Check(znodes.CONTROLLER_EPOCH, seen.epoch_version), Delete(znodes.CONTROLLER)])
    same_epoch, gone = (result.code for result in results)
    if same_epoch is not ZkCode.OK:
        raise KlammError(
            "Another controller was elected meanwhile. Run `klamm controller`, and reelect again if needed."
        )
    if gone not in (ZkCode.OK, ZkCode.NO_NODE):
        raise error_of(gone, znodes.CONTROLLER)
    found = await _wait_for_new_controller(client, seen)
    if found is None:
        raise KlammError(f"No broker became controller within {_ELECTION_TIMEOUT_S:g} s. See the logs of the brokers.")
    return found


async def hand_to(client: ZooKeeperClient, seen: ControllerStatus, broker: BrokerId) -> ControllerStatus:
    """Make this klamm node the controller; the current controller stays until then. Raises KlammError if that fails."""
    if await client.exists(znodes.broker_path(broker)) is None:
        raise KlammError(
            f"Broker {broker} is not alive. Nothing was changed. Start it, or choose another with --broker."
        )
    assert seen.epoch is not None, "a controller has an epoch"
    try:
        await request_handover(client, broker, seen.epoch)
    except NodeExists as error:
        raise KlammError(
            f"{znodes.NEXT_CONTROLLER} exists: another handover is running, or an earlier one was interrupted. "
            f"Wait a minute; if the znode still exists, delete it: klamm zk delete {znodes.NEXT_CONTROLLER}"
        ) from error
    found = await _wait_for_new_controller(client, seen)
    await remove_handover_request(client)
    if found is None:
        raise KlammError(
            f"Broker {broker} did not become controller within {_ELECTION_TIMEOUT_S:g} s; "
            f"{_broker_text(seen.controller)} remains the controller. Only klamm nodes can be chosen: check that "
            "it is one and see its log, or omit --broker."
        )
    if found.controller != broker:
        raise KlammError(f"{_broker_text(found.controller).capitalize()} was elected meanwhile. Try again.")
    return found


def _broker_text(broker: BrokerId | None) -> str:
    """Return `broker <id>`, or `no broker` for None."""
    return "no broker" if broker is None else f"broker {broker}"


async def _wait_for_new_controller(client: ZooKeeperClient, seen: ControllerStatus) -> ControllerStatus | None:
    """Wait for the first controller after `seen`; None if none is elected in time."""
    try:
        async with asyncio.timeout(_ELECTION_TIMEOUT_S):
            while True:
                now = await read_controller_status(client)
                if now.controller is not None and now.epoch != seen.epoch:
                    return now
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        return None


# ---- queues and standbys, from metrics


async def read_queues(world: World, addresses: Sequence[Address], timeout_s: float) -> list[Queue]:
    """Read the controller's request queues from the nodes' metrics pages.

    Pages that do not answer are skipped; raises CannotAsk if none does.
    """
    pages = await _metrics_pages(world, addresses, timeout_s)
    return [queue for address, page in pages.items() for queue in parse_queues(str(address), page)]


async def read_standbys(world: World, addresses: Sequence[Address], timeout_s: float) -> list[Standby]:
    """Read from the nodes' metrics pages what they have in memory for an election.

    Pages that do not answer are skipped; raises CannotAsk if none does.
    """
    pages = await _metrics_pages(world, addresses, timeout_s)
    return [parse_standby(str(address), page) for address, page in pages.items()]


async def _metrics_pages(world: World, addresses: Sequence[Address], timeout_s: float) -> dict[Address, str]:
    """The metrics pages of the nodes that answer; raises CannotAsk if none does."""
    pages = await asyncio.gather(*(_page_or_problem(world, a, timeout_s) for a in addresses))
    problems = [p for p in pages if isinstance(p, CannotAsk)]
    if len(problems) == len(pages):
        raise problems[0]
    return {a: p for a, p in zip(addresses, pages, strict=True) if isinstance(p, str)}


async def _page_or_problem(world: World, address: Address, timeout_s: float) -> str | CannotAsk:
    """Fetch a metrics page; an error is returned, not raised."""
    try:
        return await _fetch_metrics_page(world, address, timeout_s)
    except CannotAsk as error:
        return error


def parse_queues(controller: str, page: str) -> list[Queue]:
    """Parse the request queue of each broker from a metrics page; empty if the node is not the controller."""
    depth: dict[str, int] = {}
    sent: dict[str, int] = {}
    waited: dict[str, dict[str, float]] = {}
    for sample in _parse_samples(page):
        broker = sample.labels.get("broker_id", "")
        if sample.name == ACTIVE and sample.value != 1:
            return []
        if sample.name == QUEUE_SIZE:
            depth[broker] = int(sample.value)
        elif sample.name == f"{QUEUE_TIME}_count":
            sent[broker] = int(sample.value)
        elif sample.name == QUEUE_TIME and "quantile" in sample.labels:
            waited.setdefault(broker, {})[sample.labels["quantile"]] = sample.value
    ordered = sorted(depth, key=lambda b: (len(b), b))
    return [Queue(controller, b, depth[b], sent.get(b, 0), waited.get(b, {})) for b in ordered]


def parse_standby(node: str, page: str) -> Standby:
    """Parse from a metrics page what the node has in memory for its election."""
    found = {s.name: int(s.value) for s in _parse_samples(page) if s.name == ACTIVE or s.name.startswith(STANDBY)}
    partitions, changed, lag_ms = (found.get(STANDBY + n, 0) for n in ("partitions", "changed_znodes", "lag_ms"))
    if found.get(ACTIVE) == 1:
        state = "controller"
    elif found.get(f"{STANDBY}current") == 1:
        state = "current"
    else:
        state = "reading" if partitions else "none"
    return Standby(node, state, partitions, changed, lag_ms)


def _parse_samples(page: str) -> Iterable[Any]:
    """All samples of a page in Prometheus' text format."""
    return (sample for family in text_string_to_metric_families(page) for sample in family.samples)


async def _fetch_metrics_page(world: World, address: Address, timeout_s: float) -> str:
    """Send `GET /metrics`, and return the body. Raises CannotAsk."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()
    try:
        async with asyncio.timeout(timeout_s):
            await world.network.connect(lambda: _MetricsRequest(address, answer), address.host, address.port)
            content = await answer
    except (OSError, TimeoutError) as error:
        why = f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise CannotAsk(
            f"--metrics {address}: {why}. The config klamm.metrics.port of a node is the port of its metrics."
        ) from None
    head, _, body = content.partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0] + b" ":
        raise CannotAsk(
            f"--metrics {address} answered {head[:80].decode(errors='replace')!r}, which is not HTTP 200. Give the "
            "klamm.metrics.port of a node."
        )
    return body.decode(errors="replace")


class _MetricsRequest(asyncio.Protocol):
    """Sends one `GET /metrics`, and sets `answer` to all bytes received when the connection ends."""

    def __init__(self, address: Address, answer: "asyncio.Future[bytes]") -> None:
        self._address = address
        self._answer = answer
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the HTTP request for the metrics page."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        request = f"GET /metrics HTTP/1.0\r\nHost: {self._address}\r\nAccept: text/plain\r\n\r\n"
        self._transport.write(request.encode())

    def data_received(self, data: bytes) -> None:
        """Collect the page; abort the connection where it is larger than `_MAX_PAGE_BYTES`."""
        self._received += data
        if len(self._received) > _MAX_PAGE_BYTES:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Complete the answer with the received bytes, or with the error of the connection."""
        if self._answer.done():
            return
        if exc is not None:
            self._answer.set_exception(OSError(str(exc)))
        else:
            self._answer.set_result(bytes(self._received))
