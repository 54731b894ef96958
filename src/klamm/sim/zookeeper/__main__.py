"""`python -m klamm.sim.zookeeper --port 2181`: the ZooKeeper model on real ports. It stores nothing on disk."""

import argparse
import asyncio
import contextlib
from collections.abc import Sequence

from klamm.runtime.randomness import Rng
from klamm.runtime.world import real_world
from klamm.sim.zookeeper.ensemble import Ensemble, EnsembleSettings
from klamm.sim.zookeeper.server import Server


async def serve(host: str, ports: Sequence[int], tick_ms: int) -> None:
    """Run the servers of one ensemble, one per port, and print where each listens; never returns."""
    world = real_world()
    settings = EnsembleSettings(tick_ms=tick_ms, min_session_ms=2 * tick_ms, max_session_ms=60_000)
    ensemble = Ensemble(world.clock, Rng(world.randomness.bytes(8).hex()), settings)
    ensemble.start()
    for port in ports:
        listener = await Server(ensemble).listen(world.network, host, port)
        print(f"{host}:{listener.port}", flush=True)
    await asyncio.Event().wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run the servers."""
    parser = argparse.ArgumentParser(prog="klamm.sim.zookeeper", description="A model of ZooKeeper on real ports.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, nargs="+", default=[2181], help="one for each server; 0 for any free one")
    parser.add_argument(
        "--tick-ms",
        type=int,
        default=2_000,
        help="session timeouts are checked at this interval; the shortest timeout is twice as long",
    )
    chosen = parser.parse_args(arguments)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(chosen.host, chosen.port, chosen.tick_ms))


if __name__ == "__main__":
    main()
