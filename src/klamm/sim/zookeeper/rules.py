"""What ZooKeeper refuses, and which change a request becomes. Source: PrepRequestProcessor.java (3.9)."""

import base64
import hashlib
from collections.abc import Iterable, Sequence

from klamm.sim.zookeeper.tree import AclChange, Change, CreateChange, DeleteChange, SetChange, Tree, Znode, parent_of
from klamm.zk.acl import Acl, Permission
from klamm.zk.errors import ZkCode
from klamm.zk.hosts import WrongPath, check_path
from klamm.zk.operations import Check, Create, Delete, Op, Set

Identity = tuple[str, str]
"""(scheme, identity) that a connection has shown to be."""


class Refused(Exception):
    def __init__(self, code: ZkCode) -> None:
        super().__init__(code.name)
        self.code = code


def plan(tree: Tree, op: Op, session: int, who: Sequence[Identity]) -> Change | None:
    """The change an operation asks for; None for a Check that holds. Raises Refused."""
    if isinstance(op, Create):
        return _create(tree, op, session, who)
    path = _checked(op.path)
    if isinstance(op, Delete):
        if path == "/":
            raise Refused(ZkCode.BAD_ARGUMENTS)
        node = need(tree, path)
        permit(need(tree, parent_of(path)), Permission.DELETE, who)
        _check_version(node.version, op.version)
        if node.children:
            raise Refused(ZkCode.NOT_EMPTY)
        return DeleteChange(path)
    node = need(tree, path)
    permit(node, Permission.WRITE if isinstance(op, Set) else Permission.READ, who)
    _check_version(node.version, op.version)
    if isinstance(op, Check):
        return None
    return SetChange(path, op.data)


def plan_acl(tree: Tree, path: str, acl: Sequence[Acl], version: int, who: Sequence[Identity]) -> Change:
    """Raises Refused."""
    _checked(path)
    fixed = _fixed(acl, who)
    node = need(tree, path)
    permit(node, Permission.ADMIN, who)
    _check_version(node.aversion, version)
    return AclChange(path, fixed)


def _create(tree: Tree, op: Create, session: int, who: Sequence[Identity]) -> Change:
    if op.path == "/" or not op.path.startswith("/"):
        raise Refused(ZkCode.NODE_EXISTS if op.path == "/" else ZkCode.BAD_ARGUMENTS)
    acl = _fixed(op.acl, who)
    parent = need(tree, parent_of(op.path))
    permit(parent, Permission.CREATE, who)
    path = _checked(f"{op.path}{parent.created:010d}" if op.sequential else op.path)
    if tree.get(path) is not None:
        raise Refused(ZkCode.NODE_EXISTS)
    if parent.owner:
        raise Refused(ZkCode.NO_CHILDREN_FOR_EPHEMERALS)
    return CreateChange(path, op.data, acl, session if op.ephemeral else 0)


def need(tree: Tree, path: str) -> Znode:
    """Raises Refused."""
    node = tree.get(path)
    if node is None:
        raise Refused(ZkCode.NO_NODE)
    return node


def permit(node: Znode, permission: Permission, who: Sequence[Identity]) -> None:
    """Raises Refused where none of the znode's entries lets any of these identities."""
    for entry in node.acl:
        if entry.permissions & permission:
            if (entry.scheme, entry.identity) == ("world", "anyone"):
                return
            if (entry.scheme, entry.identity) in who:
                return
    raise Refused(ZkCode.NO_AUTH)


def digest_identity(credentials: bytes) -> Identity:
    """What `user:password` proves. Source: DigestAuthenticationProvider.java."""
    user = credentials.decode().partition(":")[0]
    digest = hashlib.sha1(credentials, usedforsecurity=False).digest()
    return "digest", f"{user}:{base64.b64encode(digest).decode()}"


def _fixed(acl: Sequence[Acl], who: Iterable[Identity]) -> tuple[Acl, ...]:
    """As it is stored: `auth` stands for the identities of the connection. Raises Refused."""
    fixed: dict[Acl, None] = {}
    for entry in acl:
        if entry.scheme == "auth":
            mine = [Acl(entry.permissions, *identity) for identity in who if identity[0] != "ip"]
            if not mine:
                raise Refused(ZkCode.INVALID_ACL)
            fixed |= dict.fromkeys(mine)
        elif _is_valid(entry):
            fixed[entry] = None
        else:
            raise Refused(ZkCode.INVALID_ACL)
    if not fixed:
        raise Refused(ZkCode.INVALID_ACL)
    return tuple(fixed)


def _is_valid(entry: Acl) -> bool:
    if entry.scheme == "world":
        return entry.identity == "anyone"
    return entry.scheme in ("digest", "ip") and (entry.scheme == "ip" or entry.identity.count(":") == 1)


def _check_version(current: int, expected: int) -> None:
    if expected not in (-1, current):
        raise Refused(ZkCode.BAD_VERSION)


def _checked(path: str) -> str:
    try:
        check_path(path)
    except WrongPath:
        raise Refused(ZkCode.BAD_ARGUMENTS) from None
    return path
