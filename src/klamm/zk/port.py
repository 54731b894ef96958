"""The interface of a ZooKeeper session for the stores; `client.ZooKeeper` implements it, tests have simulated ones."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from klamm.zk.acl import OPEN_ACL, Acl
from klamm.zk.jute import Stat
from klamm.zk.operations import ChildrenResult, GetResult, Op, Result
from klamm.zk.watches import WatchEvent


class ZooKeeperClient(Protocol):
    """One session. Single calls raise exceptions under ZkError; bulk calls return error codes.

    The methods are described in `client.ZooKeeper`.
    """

    on_watch: Callable[[WatchEvent], None]

    @property
    def session_id(self) -> int:
        """The id of the current ZooKeeper session."""

    @property
    def session_timeout_ms(self) -> int:
        """The requested session timeout in ms; after the first connection the negotiated one."""

    @property
    def is_alive(self) -> bool:
        """Whether the session has not expired and the client is not closed."""

    @property
    def seen_zxid(self) -> int:
        """The newest transaction id that a server reported to this session."""

    @property
    def server(self) -> str:
        """The address of the server that the session is connected to, or that it tried last."""

    async def get(self, path: str, watch: bool = False) -> tuple[bytes | None, Stat]:
        """Return content and Stat of the znode. `watch` asks for one notification of its next change. Raises NoNode."""

    async def exists(self, path: str, watch: bool = False) -> Stat | None:
        """Return the Stat of the znode; None where it does not exist.

        `watch` asks for one notification of its next change.
        """

    async def children(self, path: str, watch: bool = False) -> tuple[list[str], Stat]:
        """Return the names of the children, unordered, and the Stat of the znode. Raises NoNode."""

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: Sequence[Acl] = OPEN_ACL,
    ) -> tuple[str, Stat]:
        """Create the znode and return its path and Stat; a sequential one gets a number at the end of its name.

        Raises NodeExists, or NoNode where the parent is missing.
        """

    async def set(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        """Write the content of the znode and return its new Stat.

        Raises BadVersion unless it has this version; -1 matches any.
        """

    async def delete(self, path: str, version: int = -1) -> None:
        """Delete the znode.

        Raises BadVersion unless it has this version (-1 matches any), NotEmpty where it has children.
        """

    async def sync(self, path: str) -> None:
        """Wait until the connected server has every change that the leader had committed."""

    async def ensure_path(self, path: str, acl: Sequence[Acl] = OPEN_ACL) -> None:
        """Create the znode and its missing parents, without content; nothing happens where it exists."""

    async def ensure_paths(self, paths: Iterable[str]) -> None:
        """Create the znodes and their missing parents where they do not exist."""

    async def ensure_chroot(self, acl: Sequence[Acl] = OPEN_ACL) -> None:
        """Create the root path that all paths of this client begin with, where it does not exist."""

    async def multi(self, operations: Sequence[Op]) -> list[Result]:
        """Do all operations or none; return one result for each."""

    async def get_many(self, paths: Sequence[str], watch: bool = False) -> list[GetResult]:
        """Return content and Stat of each znode, in order; an error is a result too."""

    async def children_many(self, paths: Sequence[str], watch: bool = False) -> list[ChildrenResult]:
        """Return the children of each znode, in order; an error is a result too."""

    async def exists_many(self, paths: Sequence[str], watch: bool = False) -> list[Stat | None]:
        """Return the Stat of each znode, in order; None where it does not exist."""
