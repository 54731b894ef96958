"""Floor 6: the Spark source `klamm`, and a session with the settings that suit it."""

from klamm.spark.sessions import register, session

__all__ = ["register", "session"]
