"""The machine that a child process runs on: this one, or a network namespace that looks like another one."""

from typing import Final, NamedTuple


class Machine(NamedTuple):
    """The address that its processes listen on, and the words that precede the command of each process."""

    host: str
    launcher: tuple[str, ...] = ()


LOCAL: Final = Machine("127.0.0.1")
