"""The output of `klamm explain` for a partition."""

from pathlib import Path

import pytest

from klamm.cli.commands.explain import parse_subject, run_explain
from klamm.explain.sources import CannotExplain, Sources
from klamm.model.errors import UsageError
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import RealDisk
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_files import JournalFiles
from klamm.telemetry.journal_reader import parse_lines

ORDERS = TopicPartition("orders", 0)


class Clock:
    """One second later each time."""

    def __init__(self) -> None:
        self._now_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        self._now_ms += 1000
        return self._now_ms


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data of a cluster in which node 1 died and node 2, the controller, elected node 3."""
    journal = Journal(JournalFiles(RealDisk(), str(tmp_path / "node-2" / "logs"), 2), 2, Clock())
    journal.controller_epoch = 4
    cause = journal.event("BrokerChange", dead=[1])
    facts = {"leader_from": 1, "leader_to": 3, "leader_epoch": 9, "isr_from": [1, 3], "isr": [3]}
    journal.decision(cause, "offline", ORDERS, 3, rejected=[(1, "dead"), (2, "not in the ISR")], **facts)
    journal.write(cause, "states", {"orders": [0]})
    journal.request(cause, 3, "LEADER_AND_ISR", {"orders": [0]}, version=7)
    journal.request(cause, 2, "UPDATE_METADATA", {"orders": [0]}, version=8)
    journal.request(cause, 3, "UPDATE_METADATA", {"orders": [0]}, version=8)
    journal.response(cause, 3, "UPDATE_METADATA", ms=1)
    journal.event("TopicChange", new=["other"])
    journal.flush()
    return tmp_path


def test_klamm_explain_prints_the_events_and_the_last_state_of_a_partition(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_explain(["orders-0"], Sources(str(data), [])) == 0

    assert capsys.readouterr().out.splitlines() == [
        "2023-11-14 22:13:21.000  controller 2, epoch 4: BrokerChange: dead [1]",
        "    decided offline: leader is node 3 (was node 1), leader epoch 9, ISR 3 (was 1, 3) "
        "(not 1: dead; not 2: not in the ISR)",
        "    wrote states to ZooKeeper",
        "    sent LEADER_AND_ISR to node 3",
        "    sent UPDATE_METADATA to nodes 2, 3",
        "orders-0 now: leader is node 3, leader epoch 9, ISR 3",
    ]


def test_klamm_explain_fails_for_a_partition_that_is_not_in_the_journal(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_explain(["orders-7"], Sources(str(data), [])) == 1

    assert "There is nothing about orders-7 in" in capsys.readouterr().out


def test_klamm_explain_reads_the_journal_directory_given_by_an_option(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_explain(["orders-0"], Sources("nowhere", [str(data / "node-2" / "logs")])) == 0
    assert capsys.readouterr().out


def test_klamm_explain_without_a_journal_names_the_missing_option(tmp_path: Path) -> None:
    with pytest.raises(CannotExplain, match="--data"):
        run_explain(["orders-0"], Sources(str(tmp_path / "none"), []))
    with pytest.raises(UsageError, match="Name one of: TOPIC-PARTITION"):
        run_explain(["broker", "one"], Sources(str(tmp_path), []))
    with pytest.raises(CannotExplain, match="There is no directory"):
        run_explain(["orders-0"], Sources(str(tmp_path), [str(tmp_path / "gone")]))


def test_klamm_explain_prints_the_history_with_a_warning_when_zookeeper_is_down(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.explain.sources._ZOOKEEPER_TIMEOUT_S", 0.1)

    assert run_explain(["orders-0"], Sources(str(data), [], zookeeper="127.0.0.1:1")) == 1

    lines = capsys.readouterr().out.splitlines()
    assert "orders-0 then: leader is node 3, leader epoch 9, ISR 3" in lines
    assert any(line.startswith("critical: Cannot read ZooKeeper at 127.0.0.1:1") for line in lines)


def test_klamm_explain_decodes_only_journal_lines_about_the_requested_subject(data: Path) -> None:
    content = (data / "node-2" / "logs" / "klamm-journal-2-00000001.jsonl").read_bytes()

    orders = {(e.kind, e.facts.get("api")) for e in parse_lines(content, parse_subject(["orders-0"]).needed_lines)}
    others = {(e.kind, e.facts.get("api")) for e in parse_lines(content, parse_subject(["other"]).needed_lines)}
    controller = {
        (e.kind, e.facts.get("api")) for e in parse_lines(content, parse_subject(["controller"]).needed_lines)
    }

    requests = {("request", "LEADER_AND_ISR"), ("request", "UPDATE_METADATA"), ("response", "UPDATE_METADATA")}
    assert orders == {("event", None), ("decision", None), ("write", None), *requests}
    assert others == {("event", None), ("response", "UPDATE_METADATA")}
    assert controller == {("event", None), *requests}
