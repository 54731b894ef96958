"""How far the history is: shared by all its parts."""

from dataclasses import dataclass


@dataclass(slots=True)
class Position:
    zxid: int = 0
    """Of the newest transaction."""
    now_s: float = 0.0
    """The virtual time of what happens now."""
