"""What `klamm insight` refuses before Spark starts; the tables that it prints are tested in tests/contracts/insight."""

import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.errors import StreamingQueryException
from typer.testing import CliRunner

from klamm.cli.admin.client import CannotAsk
from klamm.cli.app import app
from klamm.cli.commands import insight
from klamm.cli.commands.insight import FollowFailed
from klamm.explain.sources import CannotExplain
from klamm.model.cluster import Cluster
from klamm.model.errors import KlammError, UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.disk import RealDisk
from klamm.spark.errors import DataLoss, LostRange

REFUSED: dict[str, tuple[type[KlammError], str]] = {
    "availability --since yesterday": (UsageError, "--since 'yesterday' is not a duration."),
    "availability --since 1h --until 2h": (UsageError, "--since 1h is not before --until 2h."),
    "availability --since 3000-01-01": (UsageError, "--since 3000-01-01 is not before now."),
    "isr-churn --interval 0s": (UsageError, "--interval 0s is not above 0. Give for example 10m or 1h."),
    "follow --tables new --bootstrap-server 127.0.0.1:1 --every 0s": (UsageError, "--every 0s is not above 0."),
    "events --topic orders": (UsageError, "--topic 'orders': klamm insight events counts over all topics."),
    "isr --parquet there": (UsageError, "--parquet there exists already. Name a new directory, or remove it."),
    "isr --json --parquet new": (UsageError, "--json and --parquet exclude each other: leave one out."),
    "isr --tables there --journal there": (UsageError, "--journal and --tables exclude each other: name one source."),
    "isr --bootstrap-server 9092": (UsageError, "--bootstrap-server '9092'"),
    "isr --bootstrap-server 127.0.0.1:1": (CannotAsk, "127.0.0.1:1"),
    "follow --tables new --bootstrap-server 127.0.0.1:1": (CannotAsk, "127.0.0.1:1"),
    "isr --journal nowhere": (CannotExplain, "There is no directory nowhere. Name the journal directory of a node"),
    "isr --data nowhere": (CannotExplain, "There is no journal in nowhere. Name the data directory of `klamm up`"),
    "isr --journal there": (CannotExplain, "There are no journal files (klamm-journal-*.jsonl) in there. Name the log"),
}


@pytest.mark.parametrize("words", REFUSED)
def test_klamm_insight_refuses_wrong_options_and_sources_before_spark_starts(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(insight, "quiet_session", lambda name: pytest.fail("Spark was started"))
    monkeypatch.setattr(insight, "ASK_TIMEOUT_S", 0.1)
    (tmp_path / "there").mkdir()
    kind, text = REFUSED[words]

    with pytest.raises(kind, match=re.escape(text)):
        CliRunner().invoke(app, ["insight", *words.split()], catch_exceptions=False)


def test_klamm_insight_of_a_cluster_without_journal_topic_names_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = Cluster(BrokerId(1), {}, {})
    monkeypatch.setattr(insight, "with_admin", lambda bootstrap, timeout_s, work: empty)

    with pytest.raises(CannotExplain, match=r"h:9092 has no topic __klamm_journal. Set klamm\.journal\.topic=__klamm"):
        CliRunner().invoke(app, ["insight", "isr", "-b", "h:9092"], catch_exceptions=False)


class Query:
    """A query that ends with an error of Spark's; `asked` has the options with which it was started."""

    asked: ClassVar[dict[str, Any]] = {}
    ends_with = ""

    def __init__(self, spark: object, directory: str) -> None:
        self._directory = directory

    def follow(self, bootstrap: str, **options: Any) -> "Query":
        Query.asked = options
        return self

    def awaitTermination(self) -> None:  # noqa: N802  # Spark's name
        raise StreamingQueryException(self.ends_with)


LOST = LostRange(TopicPartition("__klamm_journal", 0), 3, 9, "retention deleted them")


@pytest.mark.parametrize(
    ("ends_with", "text"),
    [
        (
            f"Writing job aborted.\nklamm.spark.errors.DataLoss: {DataLoss(LOST)}\n\tat java",
            "The tables in kept are not kept any more: __klamm_journal-0: offsets 3 to 8 are lost: retention deleted "
            "them. Pass --skip-lost to continue without them. The same command continues them.",
        ),
        (
            "klamm.insight.store.WrongBatch: kept has batches up to 7. Remove it.",
            "The tables in kept are not kept any more: kept has batches up to 7. Remove it. Correct the cause. "
            "The same command continues them.",
        ),
    ],
)
def test_a_query_that_fails_is_told_in_one_sentence_with_what_to_do(
    ends_with: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(insight, "quiet_session", lambda name: None)
    monkeypatch.setattr(insight, "_check_journal_topic", lambda bootstrap: None)
    monkeypatch.setattr(insight, "InsightStore", Query)
    monkeypatch.setattr(Query, "ends_with", ends_with)
    words = ["insight", "follow", "--tables", "kept", "-b", "h:9092", "--once"]

    for skips, expected in ((words, "fail"), ([*words, "--skip-lost"], "skip")):
        with pytest.raises(FollowFailed) as failed:
            CliRunner().invoke(app, skips, catch_exceptions=False)
        assert str(failed.value) == text
        assert Query.asked == {"on_data_loss": expected, "availableNow": True}


def test_tables_that_another_query_keeps_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insight, "quiet_session", lambda name: pytest.fail("Spark was started"))
    monkeypatch.setattr(insight, "_check_journal_topic", lambda bootstrap: None)
    monkeypatch.setattr(RealDisk, "lock", lambda disk, path: None)  # as where another process holds it

    with pytest.raises(UsageError, match="is in use: another klamm insight follow keeps it"):
        CliRunner().invoke(
            app, ["insight", "follow", "--tables", str(tmp_path), "-b", "h:9092"], catch_exceptions=False
        )
