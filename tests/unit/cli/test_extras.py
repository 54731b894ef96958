"""Commands without the optional packages that they need: one sentence with the remedy, and exit status 1."""

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

from klamm.cli.app import COMMANDS
from klamm.cli.extras import EXTRAS, missing_package

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
HELP_OF_ALL = """
import sys
from klamm.cli import main
for name in {names}:
    sys.argv = ["klamm", name, "--help"]
    try:
        main.main()
    except SystemExit as end:
        print("ended", name, end.code)
"""

NEED_SPARK = {
    "insight availability": "spark",
    "insight follow --tables tables --bootstrap-server 127.0.0.1:1": "spark",
    "reassign plan --cluster-file cluster.json --history .": "spark",
    "pipeline check flights.yaml": "pipeline",
    "pipeline run flights.yaml": "pipeline",
    "pipeline status flights.yaml": "pipeline",
    "spark package": "spark",
}
"""Commands, each with the extra that brings all that it needs."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed packages without the optional ones."""
    directory = tmp_path_factory.mktemp("packages")
    for package in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if package.stem not in EXTRAS and package.suffix != ".pth":
            (directory / package.name).symlink_to(package)
    return directory


def run_without_extras(installed: Path, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these words; it sees no other packages than the installed ones."""
    path = os.pathsep.join((str(ROOT / "src"), str(installed)))
    return subprocess.run(
        [sys.executable, "-S", *words],
        env={**os.environ, "PYTHONPATH": path},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", NEED_SPARK)
def test_a_command_without_its_optional_packages_ends_with_the_extra_to_install(
    words: str, installed: Path, tmp_path: Path
) -> None:
    (tmp_path / "cluster.json").write_text('{"brokers": [], "partitions": []}')

    ended = run_without_extras(installed, tmp_path, "-m", "klamm", *words.split())

    command = words.split()[0]
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        1,
        "",
        f"klamm: klamm {command} needs the package pyspark, which is not installed. "
        f'Run: pip install "klamm[{NEED_SPARK[words]}]"\n',
    )


def test_without_optional_packages_every_klamm_command_prints_help_or_the_extra_to_install(
    installed: Path, tmp_path: Path
) -> None:
    ended = run_without_extras(installed, tmp_path, "-c", HELP_OF_ALL.format(names=[*COMMANDS]))

    codes = dict(re.findall(r"ended (\S+) (\d)", ended.stdout))
    assert codes.keys() == COMMANDS.keys()
    lacking = {name for name, code in codes.items() if code != "0"}
    assert lacking == {words.split()[0] for words in NEED_SPARK} - {"reassign", "spark"}
    assert len(ended.stderr.splitlines()) == len(lacking)
    assert all(re.fullmatch(r'klamm: .*Run: pip install "klamm\[\w+\]"', line) for line in ended.stderr.splitlines())


def test_the_extra_of_every_package_that_klamm_imports_is_known() -> None:
    required = {re.split(r"[>=\[]", d)[0].replace("-", "_") for d in PROJECT["dependencies"]} | {"google_crc32c"}
    imported = {
        name.partition(".")[0]
        for path in (ROOT / "src" / "klamm").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in _imported(node)
    }
    others = imported - sys.stdlib_module_names - required - {"klamm"}
    assert others <= EXTRAS.keys() | {"pytest", "confluent_kafka"}, "add the package to klamm.cli.extras"
    assert set(EXTRAS.values()) <= PROJECT["optional-dependencies"].keys()


def _imported(node: ast.AST) -> list[str]:
    """The modules that a statement imports by their full names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []


def test_errors_about_versions_of_optional_packages_name_the_extra_too() -> None:
    old = ImportError("cannot import name 'datasource' from 'pyspark.sql'", name="pyspark.sql")
    assert str(missing_package(old, "klamm insight")) == (
        "klamm insight needs the package pyspark, which cannot be used (cannot import name 'datasource' from "
        "'pyspark.sql'). Run: pip install \"klamm[spark]\""
    )
    of_spark = ImportError("[PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed; however, it was not found.")
    assert "the package pyarrow, which cannot be used" in str(missing_package(of_spark, "klamm pipeline", "pipeline"))
    assert missing_package(ModuleNotFoundError("No module named 'nothing'", name="nothing"), "klamm insight") is None
