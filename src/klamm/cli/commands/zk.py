"""`klamm zk ls|get|tree|set|delete`: read znodes, and repair them by hand."""

from typing import Annotated

import typer

from klamm.cli.admin import znodes
from klamm.cli.options import AsJson, Auth, ConnectTimeout, Ensemble, Yes
from klamm.cli.output import confirm, print_json, print_line
from klamm.model.errors import KlammError

zk_app = typer.Typer(help="Read and repair znodes.", no_args_is_help=True)


@zk_app.command("ls")
def zk_ls(
    path: str, zookeeper: Ensemble, timeout: ConnectTimeout = 15, as_json: AsJson = False, auth: Auth = None
) -> None:
    """List the children of a znode."""
    names = znodes.run_with_session(zookeeper, timeout, lambda client: znodes.list_children(client, path), auth)
    print_json(names) if as_json else print_line("\n".join(names))


@zk_app.command("get")
def zk_get(
    path: str, zookeeper: Ensemble, timeout: ConnectTimeout = 15, as_json: AsJson = False, auth: Auth = None
) -> None:
    """Print the value and the stat of a znode."""
    znodes.print_znode(
        znodes.run_with_session(zookeeper, timeout, lambda client: znodes.read_znode(client, path), auth), as_json
    )


@zk_app.command("tree")
def zk_tree(
    zookeeper: Ensemble,
    path: Annotated[str, typer.Argument(help="the znode to start at")] = "/",
    depth: Annotated[int, typer.Option("--depth", help="number of levels to print below PATH")] = 8,
    timeout: ConnectTimeout = 15,
    as_json: AsJson = False,
    auth: Auth = None,
) -> None:
    """Print all znodes below a path with their values."""
    znodes.print_tree(
        znodes.run_with_session(zookeeper, timeout, lambda client: znodes.read_tree(client, path, depth), auth), as_json
    )


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
    """Set the value of a znode, or create it. Brokers and controller are not involved."""
    content = znodes.encode_value(value)
    before = znodes.run_with_session(zookeeper, timeout, lambda client: znodes.read_state(client, path), auth)
    was = "which does not exist yet" if before.version is None else f"now {znodes.one_line(before.value) or '(empty)'}"
    confirm(f"This writes {path}, {was}, directly to ZooKeeper: neither brokers nor controller check it.", yes)
    version = znodes.run_with_session(
        zookeeper, timeout, lambda client: znodes.write_state(client, before, content), auth
    )
    if as_json:
        print_json({"path": path, "before": before.value, "version": version})
    else:
        print_line(f"Wrote {path}, version {version}. Value before: {znodes.one_line(before.value) or '(empty)'}")


@zk_app.command("delete")
def zk_delete(
    path: str,
    zookeeper: Ensemble,
    recursive: Annotated[bool, typer.Option("--recursive", help="also delete all znodes below it")] = False,
    yes: Yes = False,
    timeout: ConnectTimeout = 15,
    as_json: AsJson = False,
    auth: Auth = None,
) -> None:
    """Delete a znode. Brokers and controller are not involved."""
    before = znodes.run_with_session(zookeeper, timeout, lambda client: znodes.read_state(client, path), auth)
    if before.version is None:
        raise KlammError(f"There is no znode {path}.")
    if before.below and not recursive:
        raise KlammError(f"{path} has {len(before.below):,} znodes below it. Pass --recursive to delete them, too.")
    more = f" and the {len(before.below):,} znodes below it" if before.below else ""
    confirm(f"This deletes {path}{more} directly in ZooKeeper: neither brokers nor controller check it.", yes)
    znodes.run_with_session(zookeeper, timeout, lambda client: znodes.delete(client, before), auth)
    if as_json:
        print_json({"path": path, "before": before.value, "deleted": [path, *before.below]})
    else:
        print_line(f"Deleted {path}{more}. Value before: {znodes.one_line(before.value) or '(empty)'}")
