"""Floor 6: the Spark source `klamm`, a session with the settings that suit it, and the lag of its queries."""

from klamm.spark.sessions import register, session
from klamm.spark.watching import Watch, watch

__all__ = ["Watch", "register", "session", "watch"]
