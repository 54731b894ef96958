"""Secrets in options: they name an environment variable or a file, which is read where the secret is needed."""

from klamm.runtime.disk import RealDisk
from klamm.runtime.processes import environment_variable
from klamm.spark.errors import BadOption
from klamm.spark.option_parsers import HiddenValue


def parse_secret(text: str) -> str:
    """Return `env:NAME` or `file:PATH` unchanged. Raises ValueError, without the text, which may be the secret."""
    kind, colon, where = text.strip().partition(":")
    if kind not in ("env", "file") or not colon or not where:
        raise HiddenValue("a secret is not written here: give env:NAME or file:PATH, which each worker must have")
    return text.strip()


def resolve_secret(option: str, reference: str) -> str:
    """Return the secret. Raises BadOption where the variable or file does not exist."""
    kind, _, where = reference.partition(":")
    if kind == "env":
        value = environment_variable(where)
        if not value:
            raise BadOption(
                f"option {option}={reference}: the environment of this worker has no variable {where}; set it"
            )
        return value
    try:
        return RealDisk().read(where).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise BadOption(
            f"option {option}={reference}: cannot read the file on this worker: {reason}; correct it"
        ) from None
