"""`klamm zk ls`, `get`, `tree`, and to mend by hand what an audit found: `set`, `delete`."""

from typing import Annotated

import msgspec
import typer

from klamm.cli.admin import znodes as zk
from klamm.cli.options import AsJson, Auth, ConnectTimeout, Ensemble, Yes
from klamm.cli.output import confirm, print_json, print_line
from klamm.model.errors import KlammError

zk_app = typer.Typer(help="What lies in ZooKeeper, decoded; set and delete mend it by hand.", no_args_is_help=True)


@zk_app.command("ls")
def zk_ls(
    path: str, zookeeper: Ensemble, timeout: ConnectTimeout = 15, as_json: AsJson = False, auth: Auth = None
) -> None:
    """The children of a znode."""
    names = zk.read(zookeeper, timeout, lambda client: zk.list_children(client, path), auth)
    print_line(msgspec.json.encode(names).decode() if as_json else "\n".join(names))


@zk_app.command("get")
def zk_get(
    path: str, zookeeper: Ensemble, timeout: ConnectTimeout = 15, as_json: AsJson = False, auth: Auth = None
) -> None:
    """A znode's value, JSON laid out, and its stat."""
    zk.show_get(zk.read(zookeeper, timeout, lambda client: zk.get(client, path), auth), as_json)


@zk_app.command("tree")
def zk_tree(
    zookeeper: Ensemble,
    path: Annotated[str, typer.Argument(help="from here on")] = "/",
    depth: Annotated[int, typer.Option("--depth", help="levels below it")] = 8,
    timeout: ConnectTimeout = 15,
    as_json: AsJson = False,
    auth: Auth = None,
) -> None:
    """Everything below a znode, each with its value on one line."""
    zk.show_tree(zk.read(zookeeper, timeout, lambda client: zk.tree(client, path, depth), auth), as_json)


@zk_app.command("set")
def zk_set(
    path: str,
    value: str,
    zookeeper: Ensemble,
    yes: Yes = False,
    timeout: ConnectTimeout = 15,
    as_json: AsJson = False,
    auth: Auth = None,
) -> None:
    """Give a znode this value, and make it where it is not there. Brokers and controller are not asked."""
    content = zk.as_value(value)
    seen = zk.read(zookeeper, timeout, lambda client: zk.look(client, path), auth)
    was = "which is not there yet" if seen.version is None else f"now {zk.one_line(seen.value) or '(nothing)'}"
    confirm(f"This writes {path}, {was}, behind the back of brokers and controller.", yes)
    version = zk.read(zookeeper, timeout, lambda client: zk.put(client, seen, content), auth)
    if as_json:
        print_json({"path": path, "before": seen.value, "version": version})
    else:
        print_line(f"{path} is written, version {version}; before: {zk.one_line(seen.value) or '(nothing)'}")


@zk_app.command("delete")
def zk_delete(
    path: str,
    zookeeper: Ensemble,
    recursive: Annotated[bool, typer.Option("--recursive", help="with what is below it")] = False,
    yes: Yes = False,
    timeout: ConnectTimeout = 15,
    as_json: AsJson = False,
    auth: Auth = None,
) -> None:
    """Delete a znode. Brokers and controller are not asked."""
    seen = zk.read(zookeeper, timeout, lambda client: zk.look(client, path), auth)
    if seen.version is None:
        raise KlammError(f"there is no znode {path}")
    if seen.below and not recursive:
        raise KlammError(f"{path} has {len(seen.below):,} znodes below it: --recursive deletes them, too")
    more = f" and the {len(seen.below):,} znodes below it" if seen.below else ""
    confirm(f"This deletes {path}{more}, behind the back of brokers and controller.", yes)
    zk.read(zookeeper, timeout, lambda client: zk.delete(client, seen), auth)
    if as_json:
        print_json({"path": path, "before": seen.value, "deleted": [path, *seen.below]})
    else:
        print_line(f"{path}{more} deleted; it was: {zk.one_line(seen.value) or '(nothing)'}")
