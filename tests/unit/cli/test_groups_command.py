"""`klamm groups describe` of groups that do not exist, and of those without members."""

from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from klamm.cli.admin.groups import DEAD, Group
from klamm.cli.app import app

ABSENT = "klamm: Group mistyped does not exist. `klamm groups list` shows the groups.\n"


@pytest.mark.parametrize(
    "form", [[], ["--members"], ["--members", "--verbose"], ["--state"], ["--offsets"], ["--json"]]
)
def test_every_form_of_groups_describe_reports_a_group_that_does_not_exist_as_an_error(form: list[str]) -> None:
    status, out, err = describe(Group("mistyped", DEAD, "", "", ()), form)

    assert (status, err) == (1, ABSENT)
    if "--json" not in form:
        assert out == ""


def test_groups_describe_prints_no_table_of_members_where_a_group_has_none() -> None:
    assert describe(Group("idle", "Empty", "consumer", "", ()), ["--members"]) == (
        0,
        "Group idle: Empty, 0 members\n",
        "",
    )


def describe(group: Group, form: list[str]) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of the command."""
    with patch("klamm.cli.commands.groups.with_admin", return_value=[(group, [])]):
        done = CliRunner().invoke(app, ["groups", "describe", "--group", group.name, *form])
    return done.exit_code, done.stdout, done.stderr
