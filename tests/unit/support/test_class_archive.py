"""Apache Kafka's processes map the classes of an earlier start only where Java could write them."""

from pathlib import Path

import pytest
from tests.support import apache_kafka, zookeeper


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


@pytest.mark.parametrize("written", [True, False])
def test_zookeeper_gets_the_class_archive_only_if_it_exists(
    written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "classes.jsa"
    if written:
        archive.touch()
    started: list[list[str]] = []
    monkeypatch.setattr(zookeeper, "class_archive", lambda java, classpath: archive)
    monkeypatch.setattr(zookeeper, "spawn", lambda name, command, log_path: started.append(command))

    zookeeper.spawn_zookeeper("zookeeper", ["java", "-Xmx32m", "-cp", "a.jar", "Main"], "log")
    zookeeper.spawn_zookeeper("zookeeper", ["java", f"{zookeeper.WRITE_CLASSES}a", "-cp", "a.jar", "Main"], "log")

    assert [f"-XX:SharedArchiveFile={archive}" in command for command in started] == [written, False]
