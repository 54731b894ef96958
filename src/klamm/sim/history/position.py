"""How far the history is: shared by all its parts."""

from dataclasses import dataclass


@dataclass(slots=True)
class Position:
    zxid: int = 0
    """Of the newest transaction."""
