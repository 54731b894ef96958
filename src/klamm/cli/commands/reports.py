"""`klamm explain` and `klamm audit`."""

from typing import Annotated

import typer

from klamm.cli.commands.audit import audit as run_audit
from klamm.cli.commands.explain import explain as run_explain
from klamm.cli.options import Auth, Data
from klamm.explain.sources import Sources


def explain(
    words: Annotated[
        list[str],
        typer.Argument(metavar="SUBJECT", help="TOPIC-PARTITION, TOPIC, broker N, controller or reassignment"),
    ],
    data: Data = "klamm-data",
    journal: Annotated[
        list[str] | None, typer.Option("--journal", help="directory with a node's journal; repeatable")
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap-server", help="HOST:PORT of a cluster whose journal is a topic")
    ] = None,
    zookeeper: Annotated[
        str | None, typer.Option("--zookeeper", help="HOST:PORT[/chroot], to say what is now and what would help")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="every event of a partition, not only the last 12")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="as one JSON object")] = False,
) -> None:
    """Tell what is, since when, by which event and why, what comes next, and which command would help."""
    raise typer.Exit(
        run_explain(words, Sources(data, journal or [], bootstrap, zookeeper), as_json, everything=everything)
    )


def audit(
    zookeeper: Annotated[str, typer.Option("--zookeeper", help="HOST:PORT[,HOST:PORT][/chroot] of the cluster")],
    as_json: Annotated[bool, typer.Option("--json", help="everything, as one JSON object")] = False,
    timeout: Annotated[float, typer.Option("--timeout", help="seconds to wait for ZooKeeper")] = 15,
    auth: Auth = None,
) -> None:
    """Say what is wrong with any ZooKeeper-mode cluster, why, and what mends it; only reads. 1: unhealthy."""
    raise typer.Exit(run_audit(zookeeper, as_json, timeout, auth or []))
