"""How findings are shown: at a terminal, in a pipe."""

import pytest
from tests.unit.audit.test_findings import LONG_AGO_MS, healthy

from klamm.audit.findings import findings
from klamm.cli.commands import audit as command


@pytest.fixture
def many_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audited is a cluster with 300 orphaned deletions, each with a remedy of its own."""
    s = healthy()
    s.deletions = {f"gone-{n:03}": LONG_AGO_MS for n in range(300)}
    s.malformed["/feature"] = "no JSON"
    monkeypatch.setattr(command, "take_snapshot", lambda *asked: s)
    assert len(findings(s)) == 301


@pytest.mark.usefixtures("many_deletions")
def test_in_a_pipe_a_finding_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.audit("zk:1", False, 1, ()) == 1

    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "severity\twhat\twhere\twhy\twhat mends it"
    assert lines[3].endswith("\tklamm zk delete /admin/delete_topics/gone-000 --zookeeper zk:2181/kafka")
    assert lines[-2:] == ["and 290 more of these kinds: --json tells all", "unhealthy: 301 findings"]


@pytest.mark.usefixtures("many_deletions")
def test_at_a_terminal_a_remedy_has_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "is_terminal", lambda: True)

    command.audit("zk:1", False, 1, ())

    lines = capsys.readouterr().out.splitlines()
    assert "  2  klamm zk delete /admin/delete_topics/gone-000 --zookeeper zk:2181/kafka" in lines
    assert "2\twarning\torphaned deletion\tgone-000\tits deletion is asked for, but there is no such topic" in lines
