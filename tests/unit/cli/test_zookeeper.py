"""Java and ZooKeeper's jars are found, or the remedy is named."""

from pathlib import Path

import pytest

from klamm.cli import zookeeper
from klamm.runtime import java
from klamm.runtime.disk import RealDisk


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java.find_java() == str(program)


def test_a_wrong_java_home_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(java.NoJava, match="JAVA_HOME is"):
        java.find_java()


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "package_folder", lambda _name: None)

    with pytest.raises(java.NoJava, match="Install Java 17 or newer"):
        java.find_java()


def test_java_of_the_package_where_the_machine_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")

    assert java.find_java().endswith("java-runtime/bin/java")


def test_the_jars_lie_in_pyspark() -> None:
    jars = zookeeper.find_jars(RealDisk())

    assert any("zookeeper-3.9" in jar for jar in jars)
    assert not any("log4j" in jar for jar in zookeeper.find_jars(RealDisk(), with_log4j=False))


def test_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "package_folder", lambda _name: None)

    with pytest.raises(zookeeper.NoZooKeeper, match=r"klamm\[embedded\]"):
        zookeeper.find_jars(RealDisk())


def test_a_pyspark_without_zookeeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "package_folder", lambda _name: str(tmp_path))

    with pytest.raises(zookeeper.NoZooKeeper, match="no zookeeper jar"):
        zookeeper.find_jars(RealDisk())
