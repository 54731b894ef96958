"""How findings are printed: on a terminal and in a pipe."""

import pytest
from tests.unit.audit.test_findings import LONG_AGO_MS, healthy

from klamm.audit.findings import findings
from klamm.audit.transactions import TransactionCheck
from klamm.cli.commands import audit as command
from klamm.model.ids import BrokerId


@pytest.fixture
def many_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audited cluster has 300 orphaned deletions, each with its own remedy."""
    s = healthy()
    s.deletions = {f"gone-{n:03}": LONG_AGO_MS for n in range(300)}
    s.malformed["/feature"] = "no JSON"
    monkeypatch.setattr(command, "take_snapshot", lambda *asked: s)
    monkeypatch.setattr(command, "check_transactions", lambda *asked: TransactionCheck([], {BrokerId(3): "refused"}))
    assert len(findings(s)) == 301


@pytest.mark.usefixtures("many_deletions")
def test_klamm_audit_prints_findings_as_tab_separated_lines_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run_audit("zk:1", False, 1, ()) == 1

    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "severity\tproblem\twhere\treason\tremedy"
    assert lines[3].endswith("\tklamm zk delete /admin/delete_topics/gone-000 --zookeeper zk:2181/kafka")
    assert lines[-3:] == [
        "And 290 more of these kinds: --json prints all.",
        "unhealthy: 301 findings",
        "Open transactions on partitions that broker 3 leads were not checked: refused",
    ]


@pytest.mark.usefixtures("many_deletions")
def test_klamm_audit_prints_remedies_on_their_own_lines_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "is_terminal", lambda: True)

    command.run_audit("zk:1", False, 1, ())

    lines = capsys.readouterr().out.splitlines()
    assert "  2  klamm zk delete /admin/delete_topics/gone-000 --zookeeper zk:2181/kafka" in lines
    assert "2\twarning\torphaned deletion\tgone-000\tit is marked for deletion, but there is no such topic" in lines
