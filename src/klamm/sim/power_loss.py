"""What a power loss leaves of a simulated disk: of the writes to a file, and of the changes of names.

It keeps of each file the synced content and a random number of the later writes, in their order; the last of them may
be torn at any byte (`PowerLoss` lists other ways). The same holds for names that were created, changed or removed
since their directory was last synced.
"""

import posixpath
from enum import StrEnum
from typing import Final, NamedTuple

from klamm.runtime.randomness import Rng

SECTOR_BYTES: Final = 512


class PowerLoss(StrEnum):
    """What becomes of the writes to a file since its last sync."""

    BYTES = "bytes"  # a prefix of them is kept, the last one torn at any byte
    SECTORS = "sectors"  # the same, torn where a sector ends
    REORDERED = "reordered"  # any of them are kept; where an earlier one is missing, there are zeros
    ALL = "all"  # nothing that was not synced is kept


class Inode:
    """A file's content, as processes see it and as it would be after a power loss."""

    __slots__ = ("content", "durable", "modified_ms", "revision", "unsynced")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.unsynced: list[tuple[int, bytes | None]] = []
        """Writes (position, bytes) and truncations (size, None) since the last sync."""
        self.modified_ms = 0
        self.revision = 0
        """Rises whenever bytes that were there change or go."""

    def apply(self, position: int, data: bytes | None) -> None:
        """Write data at a position, or truncate there if data is None; a power loss may undo it until `sync`."""
        if position < len(self.content):
            self.revision += 1
        _write_content(self.content, position, data)
        self.unsynced.append((position, data))

    def sync(self) -> None:
        """Make all writes survive a power loss."""
        for position, data in self.unsynced:
            _write_content(self.durable, position, data)
        self.unsynced.clear()

    def lose_power(self, rng: Rng, how: PowerLoss = PowerLoss.BYTES) -> None:
        """Return to the synced content with some of the later writes, as after a power loss."""
        for position, data in self._kept_writes(rng, how):
            _write_content(self.durable, position, data)
        self.unsynced.clear()
        self.content = bytearray(self.durable)
        self.revision += 1

    def _kept_writes(self, rng: Rng, how: PowerLoss) -> list[tuple[int, bytes | None]]:
        """The writes since the last sync that reached the device."""
        if how is PowerLoss.ALL:
            return []
        if how is PowerLoss.REORDERED:
            return [write for write in self.unsynced if rng.random() < 0.5]
        kept = self.unsynced[: rng.randint(0, len(self.unsynced))]
        if kept and kept[-1][1]:
            position, data = kept[-1]
            if data:
                count = rng.randint(1, len(data))
                if how is PowerLoss.SECTORS:
                    count = max(0, (position + count) // SECTOR_BYTES * SECTOR_BYTES - position)
                kept[-1] = position, data[:count]
        return kept

    def flip_bit(self, bit: int) -> None:
        """Change one bit of the content, as a failing device does; writes and syncs do not notice it."""
        for content in (self.content, self.durable):
            if bit // 8 < len(content):
                content[bit // 8] ^= 1 << bit % 8
        self.revision += 1


def _write_content(content: bytearray, position: int, data: bytes | None) -> None:
    """Write data at a position, or truncate there if data is None."""
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


Names = dict[str, Inode | None]
"""Path -> file, or None for a directory."""


class NameChanged(NamedTuple):
    """A name was created or removed."""

    path: str
    inode: Inode | None
    is_there: bool

    def apply(self, names: Names) -> None:
        """Map the path to its file if `is_there` (None stands for a directory), else remove it."""
        if self.is_there:
            names[self.path] = self.inode
        else:
            names.pop(self.path, None)

    def is_in(self, directory: str) -> bool:
        """Whether a sync of the directory makes this change durable."""
        return posixpath.dirname(self.path) == directory

    def is_below(self, path: str) -> bool:
        """Whether the name is this path, or below it."""
        return (self.path + "/").startswith(path + "/")

    def after(self, rename: "DirectoryRenamed") -> "NameChanged":
        """Return this change with its path below the new name of the directory, after the directory was renamed."""
        return self._replace(path=rename.renamed(self.path)) if self.is_below(rename.source) else self


class DirectoryRenamed(NamedTuple):
    """A directory got another name, with everything below it, at once."""

    source: str
    target: str

    def apply(self, names: Names) -> None:
        """Give everything below the directory its new name."""
        for path in [p for p in names if (p + "/").startswith(self.source + "/")]:
            names[self.renamed(path)] = names.pop(path)

    def is_in(self, directory: str) -> bool:
        """Whether a sync of the directory makes this change durable."""
        return directory in (posixpath.dirname(self.source), posixpath.dirname(self.target))

    def is_below(self, path: str) -> bool:
        """Whether the directory has this path, or one below it."""
        return (self.source + "/").startswith(path + "/")

    def renamed(self, path: str) -> str:
        """The new name of a path below the directory."""
        return self.target + path[len(self.source) :]

    def after(self, rename: "DirectoryRenamed") -> "DirectoryRenamed":
        """Return this rename with its paths below the new name of a parent directory, after that one was renamed."""
        if not self.is_below(rename.source):
            return self
        return DirectoryRenamed(rename.renamed(self.source), rename.renamed(self.target))


def without_orphans(names: Names) -> Names:
    """The names whose directories are all there: what was synced in a directory that was not is lost with it."""
    kept: Names = {"/": None}
    for path in sorted(names):
        if posixpath.dirname(path) in kept:
            kept[path] = names[path]
    return kept
