"""The words of the command `klamm` and their options."""

from typing import Annotated, Any

import msgspec
import typer
import typer.core

from klamm import __version__
from klamm.cli import zk
from klamm.cli.audit.command import audit as run_audit
from klamm.cli.explaining.command import explain as run_explain
from klamm.cli.explaining.sources import Sources
from klamm.cli.node import run_node
from klamm.cli.node_stop import stop_node
from klamm.cli.speech import say
from klamm.cli.up import CannotStart, UpOptions
from klamm.cli.up import up as run_up

app = typer.Typer(
    name="klamm",
    help="A Kafka cluster in Python, in ZooKeeper mode, whose controller explains every decision.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help texts hold [brackets] that are no markup
    context_settings={"help_option_names": ["-h", "--help"]},
)

Override = Annotated[
    list[str] | None, typer.Option("--override", help="KEY=VALUE in place of what server.properties says; repeatable")
]
Data = Annotated[str, typer.Option("--data", help="directory of a `klamm up`")]


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"klamm {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


@app.command()
def up(
    nodes: Annotated[int, typer.Option("--nodes", "-n", help="how many nodes")] = 3,
    zookeeper: Annotated[
        str | None, typer.Option("--zookeeper", help="HOST:PORT[,HOST:PORT][/chroot] of an ensemble to use")
    ] = None,
    data: Data = "klamm-data",
    port: Annotated[int, typer.Option("--port", help="port of the first node; 0 picks free ones")] = 9092,
    zookeeper_port: Annotated[
        int, typer.Option("--zookeeper-port", help="port of our ZooKeeper; 0: a free one")
    ] = 2181,
    override: Override = None,
) -> None:
    """Start ZooKeeper and some nodes on this machine, and say how to connect; Ctrl-C stops them."""
    options = UpOptions(data, nodes, zookeeper, port, zookeeper_port, parse_overrides(override or []))
    raise typer.Exit(run_up(options))


class _RunsByDefault(typer.core.TyperGroup):
    """`klamm node FILE` is `klamm node run FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


node_app = typer.Typer(cls=_RunsByDefault, no_args_is_help=True, help="Run a node, or stop one.")
app.add_typer(node_app, name="node")
Properties = Annotated[str, typer.Argument(metavar="server.properties", help="as Apache Kafka's brokers read it")]


@node_app.command("run")
def node(properties: Properties, override: Override = None) -> None:
    """Run one node against the ensemble that its server.properties names; SIGTERM stops it in order."""
    raise typer.Exit(run_node(properties, parse_overrides(override or [])))


@node_app.command("stop")
def node_stop(
    properties: Properties,
    check: Annotated[
        bool, typer.Option("--check", help="only say what would be at risk; exit status 1 if anything")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="stop it although partitions are at risk")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="the verdict as one JSON object")] = False,
    timeout: Annotated[float, typer.Option("--timeout", help="how many seconds to wait for its end")] = 60,
    override: Override = None,
) -> None:
    """Stop a node of this machine in order, unless partitions would lose their leader or fall below min ISR."""
    raise typer.Exit(stop_node(properties, parse_overrides(override or []), check, force, as_json, timeout))


@app.command()
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
    as_json: Annotated[bool, typer.Option("--json", help="as one JSON object")] = False,
) -> None:
    """Tell what is, since when, by which event and why, what comes next, and which command would help."""
    raise typer.Exit(run_explain(words, Sources(data, journal or [], bootstrap, zookeeper), as_json))


@app.command()
def audit(
    zookeeper: Annotated[str, typer.Option("--zookeeper", help="HOST:PORT[,HOST:PORT][/chroot] of the cluster")],
    as_json: Annotated[bool, typer.Option("--json", help="everything, as one JSON object")] = False,
    timeout: Annotated[float, typer.Option("--timeout", help="seconds to wait for ZooKeeper")] = 15,
    auth: Annotated[
        list[str] | None, typer.Option("--auth", help="SCHEME:CREDENTIALS, for example digest:kafka:secret; repeatable")
    ] = None,
) -> None:
    """Say what is wrong with any ZooKeeper-mode cluster, why, and what mends it; only reads. 1: unhealthy."""
    raise typer.Exit(run_audit(zookeeper, as_json, timeout, auth or []))


zk_app = typer.Typer(help="What lies in ZooKeeper, decoded; only reads.", no_args_is_help=True)
app.add_typer(zk_app, name="zk")
Ensemble = Annotated[str, typer.Option("--zookeeper", help="HOST:PORT[,HOST:PORT][/chroot] of the cluster")]
Patience = Annotated[float, typer.Option("--timeout", help="seconds to wait for ZooKeeper")]
AsJson = Annotated[bool, typer.Option("--json", help="as JSON")]


@zk_app.command("ls")
def zk_ls(path: str, zookeeper: Ensemble, timeout: Patience = 15, as_json: AsJson = False) -> None:
    """The children of a znode."""
    names = zk.read(zookeeper, timeout, lambda client: zk.list_children(client, path))
    say(msgspec.json.encode(names).decode() if as_json else "\n".join(names))


@zk_app.command("get")
def zk_get(path: str, zookeeper: Ensemble, timeout: Patience = 15, as_json: AsJson = False) -> None:
    """A znode's value, JSON laid out, and its stat."""
    zk.show_get(zk.read(zookeeper, timeout, lambda client: zk.get(client, path)), as_json)


@zk_app.command("tree")
def zk_tree(
    zookeeper: Ensemble,
    path: Annotated[str, typer.Argument(help="from here on")] = "/",
    depth: Annotated[int, typer.Option("--depth", help="levels below it")] = 8,
    timeout: Patience = 15,
    as_json: AsJson = False,
) -> None:
    """Everything below a znode, each with its value on one line."""
    zk.show_tree(zk.read(zookeeper, timeout, lambda client: zk.tree(client, path, depth)), as_json)


def parse_overrides(texts: list[str]) -> dict[str, str]:
    """`KEY=VALUE` each; raises CannotStart for one that is not."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise CannotStart(f"--override {text!r} is not KEY=VALUE, for example log.segment.bytes=1048576")
        pairs[key.strip()] = value.strip()
    return pairs
