"""A partition's story as its reader sees it."""

from pathlib import Path

import pytest

from klamm.cli.commands.explain import explain, subject
from klamm.explain.sources import NoStory, Sources
from klamm.model.errors import UsageError
from klamm.model.ids import TopicPartition
from klamm.runtime.disk import RealDisk
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_files import JournalFiles
from klamm.telemetry.journal_reader import entries_of

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
    """What a cluster left in which node 1 died and node 2, as controller, let node 3 lead."""
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


def test_the_story_of_a_partition(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(["orders-0"], Sources(str(data), [])) == 0

    assert capsys.readouterr().out.splitlines() == [
        "2023-11-14 22:13:21.000  controller 2, epoch 4: BrokerChange: dead [1]",
        "    decided offline: node 3 leads in place of node 1, leader epoch 9, ISR 3 (was 1, 3) "
        "(not 1: dead; not 2: not in the ISR)",
        "    wrote states",
        "    told node 3 by LEADER_AND_ISR",
        "    told nodes 2, 3 by UPDATE_METADATA",
        "orders-0 now: node 3 leads, leader epoch 9, ISR 3",
    ]


def test_a_partition_without_a_story(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(["orders-7"], Sources(str(data), [])) == 1

    assert "do not speak of orders-7; they speak of orders-0" in capsys.readouterr().out


def test_a_journal_named_by_itself(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(["orders-0"], Sources("nowhere", [str(data / "node-2" / "logs")])) == 0
    assert capsys.readouterr().out


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoStory, match="--data"):
        explain(["orders-0"], Sources(str(tmp_path / "none"), []))
    with pytest.raises(UsageError, match="TOPIC-PARTITION, TOPIC, broker N"):
        explain(["broker", "one"], Sources(str(tmp_path), []))
    with pytest.raises(NoStory, match="no directory"):
        explain(["orders-0"], Sources(str(tmp_path), [str(tmp_path / "gone")]))


def test_a_zookeeper_that_does_not_answer_leaves_the_story(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.explain.sources._PATIENCE_S", 0.1)

    assert explain(["orders-0"], Sources(str(data), [], zookeeper="127.0.0.1:1")) == 1

    lines = capsys.readouterr().out.splitlines()
    assert "orders-0 then: node 3 leads, leader epoch 9, ISR 3" in lines
    assert any(line.startswith("critical: ZooKeeper at 127.0.0.1:1 cannot be asked") for line in lines)


def test_only_lines_that_an_answer_needs_are_read(data: Path) -> None:
    content = (data / "node-2" / "logs" / "klamm-journal-2-00000001.jsonl").read_bytes()

    orders = {(e.kind, e.facts.get("api")) for e in entries_of(content, subject(["orders-0"]).wanted)}
    others = {(e.kind, e.facts.get("api")) for e in entries_of(content, subject(["other"]).wanted)}
    controller = {(e.kind, e.facts.get("api")) for e in entries_of(content, subject(["controller"]).wanted)}

    requests = {("request", "LEADER_AND_ISR"), ("request", "UPDATE_METADATA"), ("response", "UPDATE_METADATA")}
    assert orders == {("event", None), ("decision", None), ("write", None), *requests}
    assert others == {("event", None), ("response", "UPDATE_METADATA")}
    assert controller == {("event", None), *requests}
