"""The real ZooKeeper of other tests: it starts, stops and pauses, and an ensemble survives its leader."""

from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.support.zookeeper import Ensemble

from klamm.embedded.zookeeper import ZooKeeperServer, ZooKeeperUnavailable
from klamm.runtime.processes import ticks


def test_an_embedded_zookeeper_keeps_its_znodes_after_a_restart(zookeeper: ZooKeeperServer) -> None:
    client = KazooClient(zookeeper.connect_string)
    client.start()
    client.create("/kept", b"value")

    zookeeper.stop()
    assert zookeeper.mode is None
    zookeeper.start()

    assert client.retry(client.get, "/kept")[0] == b"value"
    client.stop()


def test_a_paused_embedded_zookeeper_answers_again_after_it_is_resumed(zookeeper: ZooKeeperServer) -> None:
    zookeeper.pause()
    assert zookeeper.mode is None
    zookeeper.resume()

    assert any(zookeeper.mode == "standalone" for _ in ticks(60))


def test_starting_an_embedded_zookeeper_on_a_port_in_use_fails(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    second = ZooKeeperServer(str(tmp_path / "second"), zookeeper.port)

    with pytest.raises(ZooKeeperUnavailable, match=f"port {zookeeper.port} is in use"):
        second.start()
    assert not second.is_running


def test_an_embedded_zookeeper_ensemble_elects_a_new_leader_when_its_leader_dies(zookeeper_ensemble: Ensemble) -> None:
    first = zookeeper_ensemble.leader

    first.kill()

    assert zookeeper_ensemble.leader is not first
    assert len(zookeeper_ensemble.followers) == 1
