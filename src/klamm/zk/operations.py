"""The operations of a multi, and what comes back for each: light tuples. Source: Op.java, OpResult.java."""

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
        """As the wire has it."""
        return self.ephemeral | self.sequential << 1


class Set(NamedTuple):
    path: str
    data: bytes | None
    version: int = -1  # -1: whatever it is


class Delete(NamedTuple):
    path: str
    version: int = -1


class Check(NamedTuple):
    """The znode exists and has this version; -1 asks for existence alone."""

    path: str
    version: int


Op: TypeAlias = Create | Set | Delete | Check


class Result(NamedTuple):
    """What one operation of a multi came to.

    Where one fails none is applied: those before it read OK, it has its own code, those after it
    RUNTIME_INCONSISTENCY. `path` is set for a Create that succeeded, `stat` for Create and Set
    (for Create not by servers before 3.6).
    """

    code: ZkCode
    path: str | None = None
    stat: Stat | None = None


class GetResult(NamedTuple):
    """`data` and `stat` only where `code` is OK; data may be None there too, a znode may hold null."""

    path: str
    code: ZkCode
    data: bytes | None
    stat: Stat | None


class ChildrenResult(NamedTuple):
    """`children` in the order the server gave; empty where `code` is not OK."""

    path: str
    code: ZkCode
    children: list[str]
