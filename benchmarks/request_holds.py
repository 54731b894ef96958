"""How long the largest requests that a client may send hold the event loop of a node, one row for each count.

    python -m benchmarks.request_holds [--elements 100000] [--only METADATA …] [--timeout 60] [--json FILE]

A whole node runs in this process, beside a model of ZooKeeper in a process of its own; the requests come from a thread
over a connection. `held` is the longest callback of the loop, in processor time of its thread. Requests name things
that do not exist where that costs as much: what is measured is the work that a client can ask for with a count in a
request. Goal: 10 ms, at worst 50 ms. (`benchmarks.stalls` measures what needs logs of some size.)
"""

import argparse
import asyncio
import json
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.stall_cases.requests import GROUP, TOPIC, Asked, requests
from benchmarks.stalls import GOAL_MS, WORST_MS, longest_callback
from klamm.broker.node import Node, start_node
from klamm.config.node_config import parse_node_config
from klamm.model.errors import KlammError
from klamm.runtime.main_loop import freeze_startup_objects
from klamm.runtime.world import real_world
from klamm.telemetry.logs import LogLevels
from klamm.wire import messages as m
from klamm.wire.api import ApiKey
from klamm.wire.frames import RequestHeader, encode_request

START_S: Final = 30.0
SETTLE_S: Final = 0.3


class Row(NamedTuple):
    api: str
    field: str
    elements: int
    held_ms: float
    seconds: float
    outcome: str


def exchange(port: int, frame: bytes, timeout_s: float) -> str:
    """Send a request and read its response; returns what came."""
    try:
        return _exchange(port, frame, timeout_s)
    except TimeoutError:
        return f"none in {timeout_s:g} s"


def _exchange(port: int, frame: bytes, timeout_s: float) -> str:
    """Send a request and read its response. Raises TimeoutError."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as client:
        client.sendall(frame)
        head = client.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            return "closed"
        (size,) = struct.unpack(">i", head)
        left = size
        while left:
            part = client.recv(min(left, 1 << 20))
            if not part:
                return "cut off"
            left -= len(part)
    return f"{size:,} bytes"


async def measure(port: int, asked: Asked, options: argparse.Namespace) -> Row:
    """Send one request from a thread and watch the loop meanwhile."""
    message = asked.build(options.elements)
    frame = b"".join(encode_request(RequestHeader(asked.api_key, asked.version, 1, "bench"), message))
    del message
    freeze_startup_objects()
    with longest_callback() as longest:
        began = time.perf_counter()
        outcome = await asyncio.to_thread(exchange, port, frame, options.timeout)
        seconds = time.perf_counter() - began
        await asyncio.sleep(SETTLE_S)
    return Row(asked.api_key.name, asked.field, options.elements, longest[0] * 1000, seconds, outcome)


async def prepare(port: int) -> None:
    """Create the topic, and the topics of the coordinators."""
    create = m.CreateTopicsRequest([m.CreatableTopic(TOPIC, 1, 1)])
    find = m.FindCoordinatorRequest(key_type=0, coordinator_keys=(GROUP,))
    for key, version, message in ((ApiKey.CREATE_TOPICS, 7, create), (ApiKey.FIND_COORDINATOR, 4, find)):
        frame = b"".join(encode_request(RequestHeader(key, version, 1, "bench"), message))
        await asyncio.to_thread(exchange, port, frame, START_S)
    await asyncio.sleep(2)


async def run(zookeeper: str, directory: str, options: argparse.Namespace) -> list[Row]:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    lines = (
        "broker.id=1", f"zookeeper.connect={zookeeper}", f"log.dirs={directory}", f"listeners=PLAINTEXT://127.0.0.1:{port}",
        "offsets.topic.num.partitions=1", "offsets.topic.replication.factor=1", "auto.create.topics.enable=false",
        "transaction.state.log.num.partitions=1", "transaction.state.log.replication.factor=1",
        "controlled.shutdown.enable=false",
    )  # fmt: skip
    config = parse_node_config("\n".join(lines).encode(), "server.properties")
    node: Node = await start_node(real_world(), config, LogLevels())
    try:
        await prepare(port)
        rows = []
        for asked in requests():
            if options.only and asked.api_key.name not in options.only:
                continue
            rows.append(await measure(port, asked, options))
            print(rows[-1], file=sys.stderr, flush=True)
        return rows
    finally:
        await node.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=100_000)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds to wait for a response")
    parser.add_argument("--only", nargs="+", metavar="API", help="measure only these, such as METADATA")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    command = [sys.executable, "-m", "klamm.sim.zookeeper", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as zookeeper:
        try:
            assert zookeeper.stdout is not None
            address = zookeeper.stdout.readline().strip()
            with tempfile.TemporaryDirectory(prefix="klamm-holds-") as directory:
                rows = asyncio.run(run(address, directory, options))
        except KlammError as error:
            sys.exit(str(error))
        finally:
            zookeeper.kill()
    table = Table(
        "API", "field", "elements", "held, ms", "took, s", "response", title=f"goal {GOAL_MS} ms, worst {WORST_MS} ms"
    )
    for row in sorted(rows, key=lambda row: -row.held_ms):
        colour = "red" if row.held_ms > WORST_MS else "yellow" if row.held_ms > GOAL_MS else "green"
        held = f"[{colour}]{row.held_ms:.1f}[/]"
        table.add_row(row.api, row.field, f"{row.elements:,}", held, f"{row.seconds:.2f}", row.outcome)
    Console(width=130).print(table)
    if options.json:
        options.json.write_text(json.dumps([row._asdict() for row in rows], indent=1))


if __name__ == "__main__":
    main()
