"""Floor 6: the Spark source `klamm`, a session with the settings that suit it, and the lag of its queries."""

from typing import Final

from klamm.runtime.processes import environment_variable
from klamm.runtime.quick_imports import quick_imports

_NOT_IN_WORKERS: Final = ("rich",)  # structlog would import it for logs on a terminal
_IS_WORKER: Final = environment_variable("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER"

with quick_imports(*(_NOT_IN_WORKERS if _IS_WORKER else ())):
    from klamm.spark.sessions import register, session
    from klamm.spark.watching import Watch, watch

__all__ = ["Watch", "register", "session", "watch"]
