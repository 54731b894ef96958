"""`klamm controller`, `klamm controller reelect`, `klamm controller queues`."""

from collections.abc import Sequence
from typing import Annotated

import typer

from klamm.cli.admin import znodes
from klamm.cli.admin.client import parse_addresses, with_admin
from klamm.cli.admin.controller import (
    ControllerStatus,
    Standby,
    hand_to,
    read_controller_status,
    read_metadata_controller,
    read_queues,
    read_standbys,
    reelect,
)
from klamm.cli.options import LOCAL, TIMEOUT_S, AsJson, Bootstrap, Data, Ensemble, Timeout, Yes
from klamm.cli.output import confirm, print_error, print_json, print_line, print_table
from klamm.explain import sources
from klamm.explain.timeline import utc_time
from klamm.explain.unanswered import unanswered
from klamm.model.cluster import Address
from klamm.model.errors import KlammError, UsageError
from klamm.model.ids import BrokerId
from klamm.runtime.disk import RealDisk
from klamm.runtime.main_loop import run_loop
from klamm.runtime.world import real_world

Metrics = Annotated[
    list[str] | None,
    typer.Option("--metrics", help="HOST:PORT of a node's metrics (klamm.metrics.port); repeatable"),
]

controller_app = typer.Typer(help="Show or move the controller; show its request queues.")


@controller_app.callback(invoke_without_command=True)
def controller(
    context: typer.Context,
    bootstrap: Bootstrap = LOCAL,
    zookeeper: Annotated[
        str | None, typer.Option("--zookeeper", help="HOST:PORT[/chroot], to show epoch and start time")
    ] = None,
    metrics: Metrics = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Show the controller; with --zookeeper also its epoch and start time, with --metrics its standbys.

    A standby has all topics and partitions in memory for its election (klamm.controller.standby).

    Exit status 1: there is no controller, or brokers and ZooKeeper disagree.
    """
    if context.invoked_subcommand is not None:
        return
    status: ControllerStatus | None = None
    if zookeeper is not None:
        status = znodes.run_with_session(zookeeper, timeout, read_controller_status)
        named, address = (status.controller, None)
    if zookeeper is None or bootstrap != LOCAL:
        named, address = with_admin(bootstrap, timeout, read_metadata_controller)
    standbys = None
    if metrics:
        standbys = run_loop(read_standbys(real_world(), _metrics_addresses(metrics), timeout))
    _print_controller(named, address, status, standbys, as_json)
    if status is not None and status.controller != named:
        print_error(
            f"The brokers say {_broker_text(named)}, ZooKeeper says {_broker_text(status.controller)}: "
            "the brokers have old metadata. Run the command again in a few seconds."
        )
    raise typer.Exit(int(named is None or (status is not None and status.controller != named)))


def _metrics_addresses(texts: Sequence[str]) -> list[Address]:
    """The addresses in all values of `--metrics`."""
    return [address for text in texts for address in parse_addresses(text, "--metrics")]


def _broker_text(broker: BrokerId | None) -> str:
    """Return `broker <id>`, or `none`."""
    return "none" if broker is None else f"broker {broker}"


def _print_controller(
    named: BrokerId | None,
    address: Address | None,
    status: ControllerStatus | None,
    standbys: Sequence[Standby] | None,
    as_json: bool,
) -> None:
    """Print the controller, its address, its epoch, since when it leads, and standbys, as text or JSON."""
    since = utc_time(status.since_ms) if status is not None and status.since_ms is not None else None
    epoch = status.epoch if status is not None else None
    if as_json:
        where = str(address) if address else None
        listed = {} if standbys is None else {"standbys": [s._asdict() for s in standbys]}
        print_json({"controller": named, "address": where, "epoch": epoch, "since": since, **listed})
        return
    known = "" if status is None else f", epoch {epoch}" + (f", since {since}" if since else "")
    print_line(f"controller: {_broker_text(named)}{f' at {address}' if address else ''}{known}")
    if standbys is not None:
        columns = ("metrics", "in memory", "partitions", "changed znodes", "lag ms")
        print_table(columns, [tuple(s) for s in standbys], "standbys")


@controller_app.command("reelect")
def reelect_(
    zookeeper: Ensemble,
    broker: Annotated[
        int | None,
        typer.Option("--broker", min=0, help="id of the klamm node that becomes controller; by default any broker"),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Elect a new controller, which reads everything again. Nothing is lost.

    With --broker this klamm node becomes controller in one transaction. Without it, /controller is deleted, and the
    first broker to create it wins, which may be the same one. Apache Kafka's brokers cannot be chosen with --broker.
    """
    seen = znodes.run_with_session(zookeeper, timeout, read_controller_status)
    if seen.since_ms is None:
        raise KlammError(
            "There is no controller. A live broker should become controller at once: look at the brokers' logs."
        )
    if broker is not None and seen.controller == broker:
        raise KlammError(f"Broker {broker} is already the controller. Nothing was changed.")
    confirm(f"This ends the term of the controller, {_broker_text(seen.controller)}, epoch {seen.epoch}.", yes)
    if broker is None:
        now = znodes.run_with_session(zookeeper, timeout, lambda client: reelect(client, seen))
    else:
        now = znodes.run_with_session(zookeeper, timeout, lambda client: hand_to(client, seen, BrokerId(broker)))
    if as_json:
        print_json({"before": seen.controller, "controller": now.controller, "epoch": now.epoch})
    else:
        print_line(
            f"controller: {_broker_text(now.controller)}, epoch {now.epoch}; before: {_broker_text(seen.controller)}"
        )


@controller_app.command()
def queues(
    metrics: Metrics = None,
    data: Data = "klamm-data",
    journal: Annotated[
        list[str] | None, typer.Option("--journal", help="journal directory of a node; repeatable")
    ] = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Show control requests that brokers have not answered: number, age, merged changes.

    Depth and waiting times come from the metrics of the controller; age and merged changes from its journal.
    """
    found = []
    if metrics:
        found = run_loop(read_queues(real_world(), _metrics_addresses(metrics), timeout))
        if not found:
            raise KlammError(
                "None of these nodes is the controller. Give --metrics of the controller's node, or of all nodes."
            )
    waiting = []
    try:
        waiting = unanswered(
            sources.read_entries(sources.Sources(data, journal or []), RealDisk()), real_world().clock.now_ms()
        )
    except sources.CannotExplain as error:
        if not metrics:
            raise UsageError(
                f"{error} Add --metrics HOST:PORT to ask a node, or --journal with the directory of its journal."
            ) from error
    if as_json:
        print_json({"queues": [q._asdict() for q in found], "unanswered": [u._asdict() for u in waiting]})
        return
    if found:
        columns = ("broker", "depth", "sent", "waited p50 ms", "waited p99 ms")
        rows = [
            (q.broker, q.depth, q.sent, _quantile_text(q.waited_ms, 0.5), _quantile_text(q.waited_ms, 0.99))
            for q in found
        ]
        print_table(columns, rows, f"request queues of the controller at {found[0].controller}")
    if found and waiting:
        print_line()
    if waiting or not found:
        print_table(
            ("broker", "request", "age s", "partitions", "merged changes", "last failure"),
            [(u.broker, u.api, f"{u.age_ms / 1000:.1f}", u.partitions, u.merged, u.failed) for u in waiting],
            "unanswered requests in the journal",
        )


def _quantile_text(waited_ms: dict[str, float], wanted: float) -> str:
    """Return the waiting time of this quantile in ms with one decimal; empty where it is not known."""
    return next((f"{ms:.1f}" for q, ms in waited_ms.items() if float(q) == wanted), "")
