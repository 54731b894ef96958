"""Spark's own Kafka connector with the PySpark that it is made for, in an environment of its own outside the sources.

pip and Maven fetch both once into the user's cache directory; without Maven, tests that need them are left out.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

VERSION = "4.0.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "klamm" / f"spark-{VERSION}"
PYTHON = CACHE / "venv" / "bin" / "python"
JARS = CACHE / "jars"
POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>klamm</groupId><artifactId>official-connector</artifactId><version>1</version><packaging>pom</packaging>
<dependencies><dependency><groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.13</artifactId>
<version>{VERSION}</version></dependency></dependencies></project>
"""


def can_fetch() -> bool:
    return (CACHE / "ready").exists() or shutil.which("mvn") is not None


def fetch() -> None:
    """Make the environment, unless it exists. Raises RuntimeError if pip or Maven fails."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (CACHE / "ready").exists():
            return
        venv.create(CACHE / "venv", with_pip=True, clear=True)
        _run(str(PYTHON), "-m", "pip", "install", "--quiet", "--no-input", f"pyspark=={VERSION}")
        pom = CACHE / "pom.xml"
        pom.write_text(POM)
        copy = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={JARS}")
        _run("mvn", "-q", "-B", "-f", str(pom), *copy)
        (CACHE / "ready").touch()


def _run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} failed: {(done.stdout + done.stderr)[-2000:]}")


def jars() -> str:
    """The connector and what it needs beside Spark's own jars, as the setting spark.jars has them."""
    needed = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
    return ",".join(str(p) for p in sorted(JARS.glob("*.jar")) if p.name.startswith(needed))


if __name__ == "__main__":
    fetch()
    sys.stdout.write(jars() + "\n")
