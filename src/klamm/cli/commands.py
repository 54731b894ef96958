"""The words of the command `klamm`: an index. Each group has its module in `verbs/`."""

from typing import Annotated

import typer

from klamm import __version__
from klamm.cli.speech import say
from klamm.cli.verbs import brokers, config, controller, elect, nodes, reassign, reports, topics, zk

app = typer.Typer(
    name="klamm",
    help="A Kafka cluster in Python, in ZooKeeper mode, whose controller explains every decision.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help texts hold [brackets] that are no markup
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


app.command()(nodes.up)
app.add_typer(nodes.node_app, name="node")
app.add_typer(topics.topics_app, name="topics")
app.add_typer(reassign.reassign_app, name="reassign")
app.command()(elect.elect)
app.add_typer(config.config_app, name="config")
app.command()(brokers.brokers)
app.add_typer(controller.controller_app, name="controller")
app.command()(reports.explain)
app.command()(reports.audit)
app.add_typer(zk.zk_app, name="zk")
