"""`klamm up`, `klamm node run`, `klamm node stop`."""

from typing import Annotated, Any

import typer
import typer.core

from klamm.cli.node_stop import stop_node
from klamm.cli.options import Data, Override, parse_pairs
from klamm.cli.up import up as run_up
from klamm.embedded.cluster import ClusterOptions
from klamm.runtime.main_loop import end_process


def up(
    nodes: Annotated[int, typer.Option("--nodes", "-n", help="number of nodes")] = 3,
    zookeeper: Annotated[
        str | None,
        typer.Option("--zookeeper", help="HOST:PORT[,HOST:PORT][/chroot] of a running ZooKeeper ensemble to use"),
    ] = None,
    data: Data = "klamm-data",
    port: Annotated[int, typer.Option("--port", help="port of the first node; 0 chooses free ports")] = 9092,
    zookeeper_port: Annotated[
        int, typer.Option("--zookeeper-port", help="port of the ZooKeeper server; 0 chooses a free port")
    ] = 2181,
    override: Override = None,
) -> None:
    """Start ZooKeeper and some nodes on this machine. Ctrl-C stops them; the data is kept."""
    options = ClusterOptions(data, nodes, zookeeper, port, zookeeper_port, parse_overrides(override or []))
    raise typer.Exit(run_up(options))


class _RunsByDefault(typer.core.TyperGroup):
    """`klamm node FILE` is `klamm node run FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the command `run` if the first argument is no command."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


node_app = typer.Typer(cls=_RunsByDefault, no_args_is_help=True, help="Run a node, or stop one.")
Properties = Annotated[str, typer.Argument(metavar="server.properties", help="in the format of Apache Kafka")]


@node_app.command("run")
def node(properties: Properties, override: Override = None) -> None:
    """Run one node in the foreground. SIGTERM starts a controlled shutdown."""
    from klamm.broker.run import run_node

    end_process(run_node(properties, parse_overrides(override or [])))


@node_app.command("stop")
def node_stop(
    properties: Properties,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="only show partitions that would lose their leader or min ISR; exit status 1 if there are any",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="stop the node even if partitions are at risk")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    timeout: Annotated[float, typer.Option("--timeout", help="seconds to wait until the node has stopped")] = 60,
    override: Override = None,
) -> None:
    """Stop a node of this machine, unless partitions would lose their leader or fall below min ISR."""
    raise typer.Exit(stop_node(properties, parse_overrides(override or []), check, force, as_json, timeout))


def parse_overrides(texts: list[str]) -> dict[str, str]:
    """Parse `KEY=VALUE` texts. Raises UsageError for one that is not."""
    return parse_pairs("--override", texts, "log.segment.bytes=1048576")
