"""`klamm zk ls`, `klamm zk get`, `klamm zk tree`."""

from typing import Annotated

import msgspec
import typer

from klamm.cli import zk
from klamm.cli.speech import say
from klamm.cli.verbs.options import AsJson, Ensemble, Patience

zk_app = typer.Typer(help="What lies in ZooKeeper, decoded; only reads.", no_args_is_help=True)


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
