"""The commands of `klamm`. A command's module is loaded only when the command runs."""

import re
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
import typer.core

from klamm import __version__


class CommandEntry(NamedTuple):
    module: str
    attribute: str
    """A function or a `typer.Typer` with commands of its own."""
    summary: str
    extra: str | None = None
    """The extra that brings all packages of the command; None: that of the package that is missing, see `extras.py`."""


COMMANDS: Final = {
    "up": CommandEntry("nodes", "up", "Start ZooKeeper and some nodes on this machine."),
    "node": CommandEntry("nodes", "node_app", "Run a node, or stop one."),
    "rolling-restart": CommandEntry("rolling_restart", "rolling_restart", "Restart the brokers one after the other."),
    "topics": CommandEntry("topics", "topics_app", "List, describe, create, alter and delete topics."),
    "groups": CommandEntry("groups", "groups_app", "List, describe, reset and delete consumer groups; show their lag."),
    "transactions": CommandEntry("transactions", "transactions_app", "List, describe and abort transactions."),
    "produce": CommandEntry("produce", "command", "Produce records from standard input or files."),
    "consume": CommandEntry("consume", "command", "Print the records of topics, as a consumer group or not."),
    "reassign": CommandEntry(
        "reassign", "reassign_app", "Plan and move partitions to other brokers: even out loads, remove a broker."
    ),
    "elect": CommandEntry("elect", "elect", "Elect partition leaders: preferred or unclean."),
    "config": CommandEntry("config", "config_app", "Get, set, unset and explain configs of topics and brokers."),
    "brokers": CommandEntry("brokers", "brokers", "Show the brokers: racks, leaders, replicas, disks."),
    "controller": CommandEntry("controller", "controller_app", "Show or move the controller; show its request queues."),
    "explain": CommandEntry(
        "explain", "explain", "Explain what happened to a partition, topic, broker, group or transaction."
    ),
    "insight": CommandEntry(
        "insight", "insight_app", "Show the history of partitions, brokers and controllers: tables, charts."
    ),
    "audit": CommandEntry("audit", "audit", "Report what is wrong with a cluster and how to repair it."),
    "replicas": CommandEntry("replicas", "replicas_app", "Compare the records of all replicas."),
    "pipeline": CommandEntry(
        "pipeline", "pipeline_app", "Check and run pipelines from topics into tables or topics.", "pipeline"
    ),
    "spark": CommandEntry("spark", "spark_app", "Bring klamm to the executors of a Spark cluster."),
    "zk": CommandEntry("zk", "zk_app", "Read and repair znodes."),
}


_USAGE_ERROR: Final[Any] = typer.BadParameter.__base__
"""The class UsageError of the click within typer, of which typer exports only this subclass."""

SUBJECT_OPTIONS: Final = frozenset(
    ("--topic", "--group", "--transactional-id", "--reassignment-json-file", "--path-to-json-file", "--zookeeper")
)
"""Options that name what a command is about; for a stray argument the first one that its command has is suggested."""


class LazyGroup(typer.core.TyperGroup):
    """Lists all commands with their summaries, and loads only the one that runs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {
            name: typer.core.TyperCommand(name, help=entry.summary, short_help=entry.summary)
            for name, entry in COMMANDS.items()
        }

    def invoke(self, ctx: Any) -> Any:
        """Run the command; the error for an argument that no command takes names the option to use instead.

        Raises MissingPackage where the command needs a package that is not installed.
        """
        try:
            return super().invoke(ctx)
        except _USAGE_ERROR as error:
            error.message += _option_instead(error)
            raise
        except ImportError as error:
            from klamm.cli.extras import missing_package

            name = ctx.invoked_subcommand
            missing = missing_package(error, f"klamm {name}", COMMANDS[name].extra)
            if missing is None:
                raise
            raise missing from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return name, command and remaining arguments; the module of the command is imported only here."""
        name, _, rest = super().resolve_command(ctx, args)
        ctx.invoked_subcommand = name  # already here, for the error of an import
        return name, None if name is None else load_command(name), rest


def _option_instead(error: Any) -> str:
    """Return how to pass an unexpected argument as an option of its command; empty for another error."""
    found = re.fullmatch(r"Got unexpected extra argument\S* \((\S+).*\)", error.message)
    if found is None or error.ctx is None:
        return ""
    names = (name for option in error.ctx.command.params for name in option.opts)
    fitting = next((name for name in names if name in SUBJECT_OPTIONS), None)
    if fitting is None:
        return f". This command takes no such argument: see `{error.ctx.command_path} --help`"
    return f". Give it as an option: {fitting} {found[1]}"


def load_command(name: str) -> Any:
    """Import the module of a command, and return the command."""
    entry = COMMANDS[name]
    implementation = getattr(import_module(f"klamm.cli.commands.{entry.module}"), entry.attribute)
    parent = typer.Typer(callback=lambda: None, rich_markup_mode=None)
    if isinstance(implementation, typer.Typer):
        parent.add_typer(implementation, name=name)
    else:
        parent.command(name)(implementation)
    return typer.main.get_group(parent).commands[name]


app = typer.Typer(
    name="klamm",
    help="A Kafka cluster in Python, in ZooKeeper mode, whose controller explains every decision.",
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help texts hold [brackets] that are no markup
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    """Print the version and exit, if `--version` was given."""
    if is_asked:
        print(f"klamm {__version__}")
        raise typer.Exit


@app.callback()
def _main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Declare the options that all commands have."""
