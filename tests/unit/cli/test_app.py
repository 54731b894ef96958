"""The command line: commands, options, output."""

import subprocess
import sys

import pytest

from klamm import __version__
from klamm.cli import output
from klamm.cli.app import COMMANDS, app
from klamm.cli.commands.nodes import parse_overrides
from klamm.model.errors import UsageError


def test_klamm_version_option_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        app(["--version"])

    assert end.value.code == 0
    assert capsys.readouterr().out == f"klamm {__version__}\n"


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS)], ids=" ".join)
def test_every_klamm_command_prints_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        app([*words, "--help"])

    assert end.value.code == 0
    assert "--help" in capsys.readouterr().out


def test_an_unknown_klamm_command_fails_and_suggests_the_nearest_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        app(["topic"])

    assert end.value.code == 2
    assert "Did you mean 'topics'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["topics", "describe", "orders"], "Give it as an option: --topic orders"),
        (["consume", "orders"], "Give it as an option: --topic orders"),
        (["groups", "describe", "copiers", "more"], "Give it as an option: --group copiers"),
        (["groups", "reset-offsets", "copiers"], "Give it as an option: --group copiers"),
        (["brokers", "1"], "This command takes no such argument: see `"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_argument_that_a_klamm_command_does_not_take_is_refused_with_the_option_to_use(
    words: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        app(words)

    assert end.value.code == 2
    assert remedy in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_klamms_version_and_help_options_import_no_command_modules(option: str) -> None:
    """They take 0.15 s of processor time at most because of this."""
    script = f"""
import sys
from klamm.cli.main import main
sys.argv = ["klamm", "{option}"]
try:
    main()
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = ended.stderr.split()

    assert {name for name in loaded if name.startswith("klamm.")} <= {
        "klamm.cli",
        "klamm.cli.main",
        "klamm.cli.app",
        "klamm.model",
        "klamm.model.errors",
        "klamm.runtime",
        "klamm.runtime.interrupts",
        "klamm.runtime.standard_descriptors",
    }
    assert not {"asyncio", "rich", "msgspec", "structlog", "prometheus_client"}.intersection(loaded)


def test_a_config_override_option_that_is_not_key_equals_value_is_rejected() -> None:
    assert parse_overrides(["a.b=1", " c = x=y "]) == {"a.b": "1", "c": "x=y"}
    with pytest.raises(UsageError, match="KEY=VALUE"):
        parse_overrides(["a.b"])
    with pytest.raises(UsageError, match="KEY=VALUE"):
        parse_overrides(["=1"])


def test_a_printed_table_wraps_long_values_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")

    output.print_table(("topic", "topic id"), [("orders", "7LgXkUygR3evvB_9UGhLWg" * 2)])

    printed = "".join(c for c in capsys.readouterr().out if c.isalnum() or c == "_")
    assert printed.count("7LgXkUygR3evvB_9UGhLWg") == 2
