"""Apache Kafka's processes map the classes of an earlier start only where Java could write them."""

from pathlib import Path

import pytest
from tests.support import apache_kafka


@pytest.mark.parametrize("written", [True, False])
def test_java_gets_the_class_archive_only_if_it_exists(
    written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / apache_kafka.CLASSES
    if written:
        archive.touch()
    monkeypatch.setattr(apache_kafka, "find_java", lambda: "java")
    monkeypatch.setattr(apache_kafka, "_logging", lambda: "-Dlog4j")
    monkeypatch.setattr(apache_kafka, "_loaded_classes", lambda: archive)

    assert (f"-XX:SharedArchiveFile={archive}" in apache_kafka.java("kafka.Kafka")) == written
