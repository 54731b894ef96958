"""Which requests ZooKeeper rejects, and which change a request becomes. Source: PrepRequestProcessor.java (3.9)."""

import base64
import hashlib
from collections.abc import Iterable, Sequence

from klamm.sim.zookeeper.tree import (
    SYSTEM_ZNODES,
    AclChange,
    Change,
    CreateChange,
    DeleteChange,
    SetChange,
    Tree,
    Znode,
    parent_of,
)
from klamm.zk.acl import OPEN_ACL, Acl, Permission
from klamm.zk.errors import ZkCode
from klamm.zk.hosts import WrongPath, check_path
from klamm.zk.operations import Check, Create, Delete, Op, Set

Identity = tuple[str, str]
"""(scheme, identity) that a connection has shown to be."""


class RequestRejected(Exception):
    """A request fails with this error code."""

    def __init__(self, code: ZkCode) -> None:
        super().__init__(code.name)
        self.code = code


def plan_change(tree: Tree, op: Op, session: int, who: Sequence[Identity]) -> Change | None:
    """The change to the tree that an operation makes; None for a successful Check. Raises RequestRejected."""
    if isinstance(op, Create):
        return _create(tree, op, session, who)
    if isinstance(op, Delete):
        return _delete(tree, op, who)
    path = _checked_path(op.path)
    node = require_znode(tree, path)
    require_permission(node, Permission.WRITE if isinstance(op, Set) else Permission.READ, who)
    _check_version(node.version, op.version)
    if isinstance(op, Check):
        return None
    return SetChange(path, op.data)


def plan_acl_change(tree: Tree, path: str, acl: Sequence[Acl], version: int, who: Sequence[Identity]) -> Change:
    """The change that sets this ACL. Raises RequestRejected."""
    _checked_path(path)
    fixed = _resolve_auth_entries(acl, who)
    node = require_znode(tree, path)
    require_permission(node, Permission.ADMIN, who)
    _check_version(node.aversion, version)
    return AclChange(path, fixed)


def _create(tree: Tree, op: Create, session: int, who: Sequence[Identity]) -> Change:
    """The change that a create makes. Raises RequestRejected."""
    parent_path = _parent_of(op.path)
    acl = _resolve_auth_entries(op.acl, who)
    parent = require_znode(tree, parent_path)
    require_permission(parent, Permission.CREATE, who)
    path = _checked_path(f"{op.path}{parent.created:010d}" if op.sequential else op.path)
    if tree.get(path) is not None:
        raise RequestRejected(ZkCode.NODE_EXISTS)
    if parent.owner:
        raise RequestRejected(ZkCode.NO_CHILDREN_FOR_EPHEMERALS)
    return CreateChange(path, op.data, acl, session if op.ephemeral else 0)


def _delete(tree: Tree, op: Delete, who: Sequence[Identity]) -> Change:
    """The change that a delete makes. Raises RequestRejected."""
    if op.path == "/" or op.path in SYSTEM_ZNODES:
        raise RequestRejected(ZkCode.BAD_ARGUMENTS)
    require_permission(require_znode(tree, _parent_of(op.path)), Permission.DELETE, who)
    node = require_znode(tree, op.path)
    _check_version(node.version, op.version)
    if node.children:
        raise RequestRejected(ZkCode.NOT_EMPTY)
    return DeleteChange(op.path)


def _parent_of(path: str) -> str:
    """The parent path. Raises RequestRejected if the text is not an absolute path."""
    if "/" not in path or "\0" in path:
        raise RequestRejected(ZkCode.BAD_ARGUMENTS)
    return parent_of(path)


def require_znode(tree: Tree, path: str) -> Znode:
    """The znode with this path. Raises RequestRejected if it does not exist."""
    node = tree.get(path)
    if node is None:
        raise RequestRejected(ZkCode.NO_NODE)
    return node


def require_permission(node: Znode, permission: Permission, who: Sequence[Identity]) -> None:
    """Raise RequestRejected unless the znode's ACL gives one of these identities the permission."""
    if node.acl is not OPEN_ACL and not allows(node.acl, permission, who):
        raise RequestRejected(ZkCode.NO_AUTH)


def allows(acl: Sequence[Acl], permission: Permission, who: Sequence[Identity]) -> bool:
    """Whether the ACL gives one of these identities the permission."""
    for entry in acl:
        if entry.permissions & permission:
            identity = entry.scheme, entry.identity
            if identity == ("world", "anyone") or identity in who:
                return True
    return False


def without_digests(node: Znode, who: Sequence[Identity]) -> Sequence[Acl]:
    """The znode's ACL; digests are hidden from clients that may not change it."""
    if not allows(node.acl, Permission.ADMIN, who):
        return [
            a._replace(identity=a.identity.partition(":")[0] + ":x") if a.scheme == "digest" else a for a in node.acl
        ]
    return node.acl


def identity_of(scheme: str, credentials: bytes, address: Identity) -> Identity | None:
    """The identity that credentials prove; None for an unknown scheme. Source: DigestAuthenticationProvider.java."""
    if scheme == "ip":
        return address
    if scheme != "digest":
        return None
    user = credentials.decode(errors="replace").partition(":")[0]
    digest = hashlib.sha1(credentials, usedforsecurity=False).digest()
    return "digest", f"{user}:{base64.b64encode(digest).decode()}"


def _resolve_auth_entries(acl: Sequence[Acl], who: Iterable[Identity]) -> tuple[Acl, ...]:
    """The ACL to store: `auth` entries become the connection's identities. Raises RequestRejected."""
    if tuple(acl) == OPEN_ACL:
        return OPEN_ACL
    fixed: list[Acl] = []
    for entry in dict.fromkeys(acl):
        if entry.scheme == "auth":
            mine = [Acl(entry.permissions, *identity) for identity in who if identity[0] != "ip"]
            if not mine:
                raise RequestRejected(ZkCode.INVALID_ACL)
            fixed += mine
        elif _is_valid(entry):
            fixed.append(entry)
        else:
            raise RequestRejected(ZkCode.INVALID_ACL)
    if not fixed:
        raise RequestRejected(ZkCode.INVALID_ACL)
    return tuple(fixed)


def _is_valid(entry: Acl) -> bool:
    """Whether the ACL entry has a known scheme and a valid id."""
    if entry.scheme == "world":
        return entry.identity == "anyone"
    if entry.scheme == "digest":
        return len(entry.identity.rstrip(":").split(":")) == 2
    return entry.scheme == "ip"


def _check_version(current: int, expected: int) -> None:
    """Raise RequestRejected unless the versions are equal or any version is expected (-1)."""
    if expected not in (-1, current):
        raise RequestRejected(ZkCode.BAD_VERSION)


def _checked_path(path: str) -> str:
    """Return the path if it is valid. Raises RequestRejected."""
    try:
        check_path(path)
    except WrongPath:
        raise RequestRejected(ZkCode.BAD_ARGUMENTS) from None
    return path
