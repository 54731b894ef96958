"""kcat: the installed one, or the package of a Debian-like system, which apt fetches once into `.cache/kcat`.

Nothing is installed and no rights are needed: apt keeps its lists in that directory, too.
"""

import os
import re
import shutil
from functools import cache
from typing import NamedTuple

from tests.support.cache import CACHE, made_once, run

DIRECTORY = CACHE / "kcat"
_PROGRAM = DIRECTORY / "usr" / "bin" / "kcat"
_TO_INSTALL = re.compile(r"^Inst (\S+)", re.MULTILINE)
_INSTALLED = "/var/lib/dpkg/status"


class Kcat(NamedTuple):
    """How to start kcat."""

    program: str
    environment: dict[str, str]


@cache
def why_missing() -> str | None:
    """Why kcat cannot run here, in one sentence; None if it can. Fetches it first."""
    if shutil.which("kcat") or _PROGRAM.exists():
        return None
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return "kcat is not installed, and there is no apt to fetch it"
    _fetch()
    return None


def _fetch() -> None:
    """Let apt fetch kcat and the libraries that are not installed. Raises RuntimeError if it fails."""
    with made_once(DIRECTORY) as partial:
        if partial is None:
            return
        lists = partial / "lists"
        (lists / "lists" / "partial").mkdir(parents=True)
        options = ("-o", f"Dir::State={lists}", "-o", f"Dir::State::status={_INSTALLED}", "-o", f"Dir::Cache={lists}")
        run("fetch apt's lists of packages", ["apt-get", *options, "update"])
        needed = _TO_INSTALL.findall(run("find kcat with apt", ["apt-get", *options, "-s", "install", "kcat"]))
        run("fetch kcat with apt", ["apt-get", *options, "download", *needed], partial)
        for package in sorted(partial.glob("*.deb")):
            run(f"unpack {package.name}", ["dpkg", "-x", str(package), str(partial)])
        shutil.rmtree(lists)


def kcat() -> Kcat:
    """The program and its environment. Needs `why_missing() is None`."""
    if installed := shutil.which("kcat"):
        return Kcat(installed, dict(os.environ))
    libraries = {str(path.parent) for path in (DIRECTORY / "usr" / "lib").rglob("*.so*")}
    return Kcat(str(_PROGRAM), {**os.environ, "LD_LIBRARY_PATH": ":".join(sorted(libraries))})
