"""What Spark says of a failed pipeline, reduced to the sentence that tells the cause."""

import re
from typing import Final

from klamm.model.errors import KlammError

_OWN: Final = re.compile(r"klamm\.[a-z_.]+\.[A-Z]\w+: (.+)")
_PY4J: Final = "An error occurred while calling "
"""Py4J begins an error of Java with this line, and gives Java's own in the next one."""
_MAX_CHARS: Final = 1_000


class PipelineFailed(KlammError):
    """A pipeline ended with an error; nothing of its last micro-batch counts, and the next run continues with it."""


def cause_of(error: BaseException) -> str:
    """The sentence of klamm's error inside one of Spark's; else the first line of Spark's message."""
    if isinstance(error, KlammError):
        return str(error)
    text = str(error)
    if found := _OWN.findall(text):
        return str(found[-1])[:_MAX_CHARS]
    lines = (line.strip() for line in text.splitlines())
    said = (line.removeprefix(": ") for line in lines if line and not line.startswith(_PY4J))
    first = next(said, type(error).__name__)
    return first.partition(" SQLSTATE")[0][:_MAX_CHARS]
