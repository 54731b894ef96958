"""Parsing of connect strings and znode paths."""

import pytest

from klamm.zk.hosts import Ensemble, Server, WrongHosts, WrongPath, check_path, parse_hosts

GOOD = {
    "one": ("h1:2181", Ensemble((Server("h1", 2181),), "")),
    "default port": ("h1", Ensemble((Server("h1", 2181),), "")),
    "chroot": ("h1:1,h2:2/kafka/one", Ensemble((Server("h1", 1), Server("h2", 2)), "/kafka/one")),
    "root is no chroot": ("h1:1/", Ensemble((Server("h1", 1),), "")),
    "spaces and two slashes in a rows": (" h1:1 , ,h2:2 ", Ensemble((Server("h1", 1), Server("h2", 2)), "")),
    "named twice": ("h1:1,h1:1", Ensemble((Server("h1", 1),), "")),
    "IPv6": ("[::1]:2182,[fe80::2]/x", Ensemble((Server("::1", 2182), Server("fe80::2", 2181)), "/x")),
}


@pytest.mark.parametrize(("text", "expected"), GOOD.values(), ids=GOOD)
def test_a_zookeeper_connect_string_is_parsed_to_servers_and_chroot(text: str, expected: Ensemble) -> None:
    assert parse_hosts(text) == expected


WRONG = {
    "nothing": ("", "has no ZooKeeper server"),
    "only a chroot": ("/kafka", "has no ZooKeeper server"),
    "no host": (":2181", "no host name"),
    "port is a word": ("h1:client", "'client' is not a port"),
    "port too large": ("h1:70000", "not a port"),
    "port 0": ("h1:0", "not a port"),
    "no port after the colon": ("h1:", "'' is not a port"),
    "bare IPv6": ("::1", "brackets"),
    "bracket left open": ("[::1", "IPv6 address is written"),
    "rubbish after the bracket": ("[::1]2181", "IPv6 address is written"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_an_invalid_zookeeper_connect_string_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(WrongHosts, match=message):
        parse_hosts(text)


WRONG_PATHS = {
    "relative": "a",
    "empty": "",
    "slash at the end": "/a/",
    "two slashes in a row": "/a//b",
    "dot": "/a/./b",
    "dots": "/a/..",
    "control character": "/a\n",
    "private character": "/\ue000",
}


@pytest.mark.parametrize("path", WRONG_PATHS.values(), ids=WRONG_PATHS)
def test_a_znode_path_that_zookeeper_would_refuse_is_refused_before_sending(path: str) -> None:
    with pytest.raises(WrongPath):
        check_path(path)


@pytest.mark.parametrize("path", ["/", "/a", "/a.b/..c/.d", "/ä/日本"])
def test_a_valid_znode_path_is_accepted(path: str) -> None:
    check_path(path)


def test_an_invalid_zookeeper_chroot_path_is_refused() -> None:
    with pytest.raises(WrongPath, match="two slashes in a row"):
        parse_hosts("h1/a//b")
