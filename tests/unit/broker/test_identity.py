"""Log directories say whose they are; a node that is not theirs does not start."""

from pathlib import Path

import pytest

from klamm.broker.identity import check_log_directories, choose_broker_id
from klamm.broker.lifecycle import CannotStart
from klamm.config.node_config import NodeConfig, parse_node_config
from klamm.runtime.disk import RealDisk

DISK = RealDisk()


class Numbers:
    async def generate_broker_id(self, reserved_max: int) -> int:
        return reserved_max + 1


def config(tmp_path: Path, broker_id: int = -1) -> NodeConfig:
    directories = f"{tmp_path}/a,{tmp_path}/b"
    text = f"zookeeper.connect=z:1\nbroker.id={broker_id}\nlog.dirs={directories}"
    made = parse_node_config(text.encode(), "server.properties")
    check_log_directories(DISK, made)
    return made


def mark(directory: Path, broker_id: int = 3, cluster: str = "ours", version: int = 0) -> None:
    """Write a meta.properties into the directory."""
    text = f"#\nversion={version}\nbroker.id={broker_id}\ncluster.id={cluster}\n"
    (directory / "meta.properties").write_text(text)


async def choose(made: NodeConfig) -> int:
    return await choose_broker_id(DISK, made, "ours", Numbers())  # type: ignore[arg-type]


async def test_a_node_uses_the_configured_broker_id(tmp_path: Path) -> None:
    assert await choose(config(tmp_path, 7)) == 7


async def test_a_node_without_a_configured_broker_id_uses_that_in_meta_properties(tmp_path: Path) -> None:
    made = config(tmp_path)
    mark(tmp_path / "a")

    assert await choose(made) == 3


async def test_a_node_without_any_broker_id_gets_a_generated_id_from_zookeeper(tmp_path: Path) -> None:
    assert await choose(config(tmp_path)) == 1001


async def test_a_node_start_with_another_brokers_log_directory_names_the_config_line_to_change(tmp_path: Path) -> None:
    made = config(tmp_path, 7)
    mark(tmp_path / "b")

    with pytest.raises(
        CannotStart,
        match=r"b/meta.properties belongs to broker 3, but broker.id=7. Change \"broker.id\" \(server.*, line \d\)",
    ):
        await choose(made)


async def test_a_node_start_fails_if_its_log_directories_belong_to_two_brokers(tmp_path: Path) -> None:
    made = config(tmp_path)
    mark(tmp_path / "a")
    mark(tmp_path / "b", 4)

    with pytest.raises(CannotStart, match="different brokers"):
        await choose(made)


async def test_a_node_start_with_another_clusters_log_directory_fails_with_a_remedy(tmp_path: Path) -> None:
    made = config(tmp_path)
    mark(tmp_path / "a", cluster="theirs")

    said = r"belongs to the cluster theirs, .*zookeeper\.connect.* klamm zk set /cluster/id '.*theirs.*' --zookeeper"
    with pytest.raises(CannotStart, match=said):
        await choose(made)


async def test_a_node_start_with_a_log_directory_of_a_kraft_cluster_fails(tmp_path: Path) -> None:
    made = config(tmp_path)
    mark(tmp_path / "a", version=1)

    with pytest.raises(CannotStart, match="KRaft"):
        await choose(made)


@pytest.mark.parametrize(
    ("keys", "named"), [(("log.dir",), "log.dir"), (("log.dirs",), "log.dirs"), (("log.dir", "log.dirs"), "log.dirs")]
)
def test_an_unusable_log_directory_is_refused_with_the_config_key_that_lists_the_directory(
    tmp_path: Path, keys: tuple[str, ...], named: str
) -> None:
    (tmp_path / "a").write_text("a file")
    text = "zookeeper.connect=z:1\n" + "".join(f"{key}={tmp_path}/a\n" for key in keys)

    with pytest.raises(CannotStart, match=rf"change \"{named}\" \(server\.properties, line \d\)"):
        check_log_directories(DISK, parse_node_config(text.encode(), "server.properties"))


async def test_a_node_starts_if_only_some_of_its_log_directories_are_usable(tmp_path: Path) -> None:
    made = config(tmp_path)
    mark(tmp_path / "b", broker_id=3)
    (tmp_path / "a").rmdir()
    (tmp_path / "a").write_text("not a directory any more")

    check_log_directories(DISK, made)

    assert await choose(made) == 3


async def test_no_broker_id_is_generated_while_an_unreadable_log_directory_may_hold_a_broker_id(tmp_path: Path) -> None:
    made = config(tmp_path)
    (tmp_path / "a").rmdir()
    (tmp_path / "a").write_text("not a directory any more")

    with pytest.raises(CannotStart, match=r"Cannot read .*/a/meta\.properties: .* set broker\.id"):
        await choose(made)


def test_a_node_start_fails_if_its_log_directories_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    (tmp_path / "b").write_text("a file")

    with pytest.raises(
        CannotStart,
        match=r"Cannot use the log directory .*/a: file exists.* change \"log\.dirs\" \(server\.properties, line \d\)",
    ):
        config(tmp_path)
