"""The operations of a multi and their results, as light tuples. Source: Op.java, OpResult.java."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from klamm.zk.acl import OPEN_ACL, Acl
from klamm.zk.errors import ZkCode
from klamm.zk.jute import Stat


class Create(NamedTuple):
    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False
    acl: Sequence[Acl] = OPEN_ACL

    @property
    def flags(self) -> int:
        """The flags in the encoded operation."""
        return self.ephemeral | self.sequential << 1


class Set(NamedTuple):
    path: str
    data: bytes | None
    version: int = -1  # -1: whatever it is


class Delete(NamedTuple):
    path: str
    version: int = -1


class Check(NamedTuple):
    """Checks that the znode exists and has this version; -1 checks only that it exists."""

    path: str
    version: int


Op: TypeAlias = Create | Set | Delete | Check


class Result(NamedTuple):
    """The result of one operation of a multi.

    If one operation fails, none is applied: it has its own code, those before it have OK, those after it
    RUNTIME_INCONSISTENCY. `path` is set for a successful Create, `stat` for Create and Set (before ZooKeeper 3.6 not
    for Create).
    """

    code: ZkCode
    path: str | None = None
    stat: Stat | None = None


class GetResult(NamedTuple):
    """The result of reading one znode; `data` and `stat` are set if `code` is OK. A znode's data may be None, too."""

    path: str
    code: ZkCode
    data: bytes | None
    stat: Stat | None


class ChildrenResult(NamedTuple):
    """The result of listing children, in the server's order; empty if `code` is not OK."""

    path: str
    code: ZkCode
    children: list[str]
