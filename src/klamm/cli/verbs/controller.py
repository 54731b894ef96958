"""`klamm controller`, `klamm controller reelect`, `klamm controller queues`."""

from typing import Annotated

import typer

from klamm.cli import zk
from klamm.cli.admin.client import Address, parse_addresses, with_admin
from klamm.cli.controlling import (
    ControllerStatus,
    hand_to,
    named_controller,
    read_controller_status,
    read_queues,
    reelect,
)
from klamm.cli.explaining import sources
from klamm.cli.explaining.story import when
from klamm.cli.explaining.under_way import unanswered
from klamm.cli.speech import WrongUse, complain, confirm, say, say_json, show
from klamm.cli.verbs.options import LOCAL, TIMEOUT_S, AsJson, Bootstrap, Data, Ensemble, Timeout, Yes
from klamm.model.errors import KlammError
from klamm.model.ids import BrokerId
from klamm.runtime.disk import RealDisk
from klamm.runtime.main_loop import run_loop
from klamm.runtime.world import real_world

controller_app = typer.Typer(help="Who controls the cluster; a new election; what brokers have not answered.")


@controller_app.callback(invoke_without_command=True)
def controller(
    context: typer.Context,
    bootstrap: Bootstrap = LOCAL,
    zookeeper: Annotated[
        str | None, typer.Option("--zookeeper", help="HOST:PORT[/chroot], to know epoch and since when")
    ] = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Who is controller; with --zookeeper also its epoch and since when. Exit status 1: nobody, or two opinions."""
    if context.invoked_subcommand is not None:
        return
    status: ControllerStatus | None = None
    if zookeeper is not None:
        status = zk.read(zookeeper, timeout, read_controller_status)
        named, address = (status.controller, None)
    if zookeeper is None or bootstrap != LOCAL:
        named, address = with_admin(bootstrap, timeout, named_controller)
    _tell(named, address, status, as_json)
    if status is not None and status.controller != named:
        complain(f"the brokers name {_who(named)}, ZooKeeper {_who(status.controller)}: they have not heard of it yet")
    raise typer.Exit(int(named is None or (status is not None and status.controller != named)))


def _who(broker: BrokerId | None) -> str:
    return "nobody" if broker is None else f"broker {broker}"


def _tell(named: BrokerId | None, address: Address | None, status: ControllerStatus | None, as_json: bool) -> None:
    since = when(status.since_ms) if status is not None and status.since_ms is not None else None
    epoch = status.epoch if status is not None else None
    if as_json:
        where = str(address) if address else None
        say_json({"controller": named, "address": where, "epoch": epoch, "since": since})
        return
    known = "" if status is None else f", epoch {epoch}" + (f", since {since}" if since else "")
    say(f"controller: {_who(named)}{f' at {address}' if address else ''}{known}")


@controller_app.command("reelect")
def reelect_(
    zookeeper: Ensemble,
    broker: Annotated[
        int | None, typer.Option("--broker", min=0, help="the klamm node that shall have it; it is never free then")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """End the controller's term; the next controller reads everything anew. Nothing is lost.

    With --broker a klamm node takes it in one transaction, whoever has it now. Without, all brokers run for it, and the
    quickest wins: that may be the same again. A broker of Apache Kafka cannot be named: none can be told to run alone.
    """
    seen = zk.read(zookeeper, timeout, read_controller_status)
    if seen.since_ms is None:
        raise KlammError("There is no controller. A live broker becomes controller at once: look at the brokers' logs")
    if broker is not None and seen.controller == broker:
        raise KlammError(f"broker {broker} is controller already")
    confirm(f"This deletes /controller, held by {_who(seen.controller)}, epoch {seen.epoch}.", yes)
    if broker is None:
        now = zk.read(zookeeper, timeout, lambda client: reelect(client, seen))
    else:
        now = zk.read(zookeeper, timeout, lambda client: hand_to(client, seen, BrokerId(broker)))
    if as_json:
        say_json({"before": seen.controller, "controller": now.controller, "epoch": now.epoch})
    else:
        say(f"controller: {_who(now.controller)}, epoch {now.epoch}; before: {_who(seen.controller)}")


@controller_app.command()
def queues(
    metrics: Annotated[
        list[str] | None, typer.Option("--metrics", help="HOST:PORT of a node's klamm.metrics.port; repeatable")
    ] = None,
    data: Data = "klamm-data",
    journal: Annotated[list[str] | None, typer.Option("--journal", help="a node's journal; repeatable")] = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """What brokers were told and have not answered: how much, how old, how many changes joined in one request.

    Depth and waiting times come from the controller's metrics; age and joined changes from its journal.
    """
    found = []
    if metrics:
        addresses = [address for text in metrics for address in parse_addresses(text, "--metrics")]
        found = run_loop(read_queues(real_world(), addresses, timeout))
        if not found:
            raise KlammError("none of these nodes is controller: name the controller's metrics, or those of all nodes")
    waiting = []
    try:
        waiting = unanswered(
            sources.read_entries(sources.Sources(data, journal or []), RealDisk()), real_world().clock.now_ms()
        )
    except sources.NoStory as error:
        if not metrics:
            raise WrongUse(f"--metrics HOST:PORT, or a journal: {error}") from error
    if as_json:
        say_json({"queues": [q._asdict() for q in found], "unanswered": [u._asdict() for u in waiting]})
        return
    if found:
        columns = ("broker", "depth", "sent", "waited p50 ms", "waited p99 ms")
        rows = [(q.broker, q.depth, q.sent, _quantile(q.waited_ms, 0.5), _quantile(q.waited_ms, 0.99)) for q in found]
        show(columns, rows, f"requests of the controller at {found[0].controller}")
    if found and waiting:
        say()
    if waiting or not found:
        show(
            ("broker", "request", "age s", "partitions", "joined changes", "last failure"),
            [(u.broker, u.api, f"{u.age_ms / 1000:.1f}", u.partitions, u.merged, u.failed) for u in waiting],
            "unanswered, as the journal tells",
        )


def _quantile(waited_ms: dict[str, float], wanted: float) -> str:
    return next((f"{ms:.1f}" for q, ms in waited_ms.items() if float(q) == wanted), "")
