"""Commands that list something say so where there is nothing, on standard error: programs read an empty list."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from klamm.cli import output
from klamm.cli.admin.elections import Elected
from klamm.cli.app import app
from klamm.config.entities import TOPIC, Entity

NOTHING: dict[str, tuple[str, Any, str]] = {
    "topics list": ("topics", [], "No topic was found."),
    "groups list": ("groups", ([], []), "No group was found."),
    "transactions list": ("transactions", ([], []), "No transactional id was found."),
    "transactions find-hanging --broker-id 1": ("transactions", ([], []), "No hanging transaction was found."),
    "transactions describe-producers --topic orders --partition 2": (
        "transactions",
        ([], []),
        "orders-2 has no active producers.",
    ),
    "reassign list": ("reassign", {}, "No partition is being reassigned."),
    "reassign status": ("reassign", ([], [], {}, []), "No partition is being reassigned."),
    "elect --election-type preferred --all-topic-partitions": (
        "elect",
        Elected([], [], []),
        "No partition needed an election.",
    ),
    "config get --topic orders": (
        "config",
        ({Entity(TOPIC, "orders"): {}}, []),
        "topic orders: no config is set for it. Pass --all to see the others.",
    ),
}


@pytest.mark.parametrize(("command", "module", "found", "sentence"), [(c, *n) for c, n in NOTHING.items()], ids=NOTHING)
def test_a_command_that_finds_nothing_says_so_on_standard_error(
    command: str, module: str, found: Any, sentence: str
) -> None:
    status, out, err = run(command.split(), module, found)

    assert (status, err) == (0, f"klamm: {sentence}\n")
    assert out.count("\n") <= 1  # the names of the columns

    assert run([*command.split(), "--json"], module, found)[2] == ""


def test_an_empty_table_is_not_drawn_on_a_terminal_where_a_sentence_replaces_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)

    output.print_table(("partition",), [], if_empty="No partition is being reassigned.")

    assert capsys.readouterr() == ("", "klamm: No partition is being reassigned.\n")


def run(words: Sequence[str], module: str, found: Any) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of the command."""
    with patch(f"klamm.cli.commands.{module}.with_admin", return_value=found):
        done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.stdout, done.stderr
