"""The command line's own rules."""

import inspect
import re
from typing import Any

import pytest
import typer

from klamm import __version__
from klamm.audit import remedies
from klamm.cli.commands import app
from klamm.cli.verbs.nodes import parse_overrides
from klamm.model.errors import UsageError


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        app(["--version"])

    assert end.value.code == 0
    assert capsys.readouterr().out == f"klamm {__version__}\n"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["up"],
        ["node"],
        ["explain"],
        ["topics"],
        ["reassign"],
        ["elect"],
        ["config"],
        ["brokers"],
        ["controller"],
        ["zk"],
    ],
    ids=" ".join,
)
def test_every_command_tells_its_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        app([*words, "--help"])

    assert end.value.code == 0
    assert "--help" in capsys.readouterr().out


def test_overrides_are_pairs() -> None:
    assert parse_overrides(["a.b=1", " c = x=y "]) == {"a.b": "1", "c": "x=y"}
    with pytest.raises(UsageError, match="KEY=VALUE"):
        parse_overrides(["a.b"])
    with pytest.raises(UsageError, match="KEY=VALUE"):
        parse_overrides(["=1"])


def test_every_remedy_of_the_audit_is_a_command_that_there_is() -> None:
    """Words and options of each `klamm ...` in its findings."""
    said = re.findall(r"klamm ((?:[a-z]+ ?)+)((?:--[a-z-]+ ?)*)", inspect.getsource(remedies))
    assert len(said) > 10
    for words, options in said:
        found: Any = typer.main.get_command(app)
        for word in words.split():
            if not hasattr(found, "commands") or word not in found.commands:
                break
            found = found.commands[word]
        assert found.name != "klamm", words
        known = {name for parameter in found.params for name in parameter.opts}
        assert set(options.split()) <= known, (words, options)
