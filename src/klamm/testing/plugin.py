"""pytest plugin: clusters, topics and groups as fixtures, and the nodes' logs in the report of a failed test.

Everything else is imported by the fixtures, so that a run of pytest without them costs nothing.
"""

import re
from collections.abc import Generator, Iterator
from typing import Any, Final

import pytest

CLUSTER: Final = "klamm_cluster"
OWN_CLUSTER: Final = "klamm_own_cluster"
MARKERS: Final = (
    "klamm(brokers=3, racks=(), overrides={}, network_faults=False): the cluster of the fixture klamm_own_cluster",
    "klamm_topic(partitions=3, copies=None, config={}): the topic of the fixture klamm_topic",
)
_TOPIC_NAME_CHARS: Final = 200


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings of the cluster that all tests of a session share."""
    parser.addini("klamm_brokers", "nodes of klamm_cluster", default="3")
    parser.addini("klamm_racks", "racks of klamm_cluster, given to its nodes in turn", type="args", default=[])
    parser.addini(
        "klamm_overrides", "configs of all nodes of klamm_cluster, KEY=VALUE lines", type="linelist", default=[]
    )
    parser.addini("klamm_network_faults", "whether klamm_cluster can be partitioned", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the pytest markers."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.fixture(scope="session")
def klamm_cluster(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The fixture of a cluster that all tests share, one for each worker of pytest-xdist.

    What a test broke is repaired before the next test.
    """
    from klamm.testing.settings import cluster_from_ini

    with cluster_from_ini(pytestconfig.getini, tmp_path_factory.mktemp("klamm")) as cluster:
        pytestconfig.stash[_SHARED] = cluster
        yield cluster
    del pytestconfig.stash[_SHARED]


@pytest.fixture
def klamm_own_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The fixture of a cluster for one test, with the options of the marker `klamm`."""
    from klamm.testing.settings import cluster_from_marker

    with cluster_from_marker(request.node.get_closest_marker("klamm"), tmp_path_factory.mktemp("klamm")) as cluster:
        yield cluster


@pytest.fixture
def klamm_topic(request: pytest.FixtureRequest) -> str:
    """The fixture of a new topic: its name. It is in the test's own cluster if it has one; marker: `klamm_topic`."""
    from klamm.testing.settings import topic_options

    name = _unique_name(request)
    options = topic_options(request.node.get_closest_marker("klamm_topic"))
    _cluster_of(request).create_topic(name, **options)
    return name


@pytest.fixture
def klamm_group(request: pytest.FixtureRequest) -> Any:
    """The fixture of a consumer group that no other test uses, in the test's own cluster if it has one."""
    return _cluster_of(request).group(_unique_name(request))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Repair the shared cluster where an earlier test left it broken."""
    cluster = item.config.stash.get(_SHARED, None)
    if cluster is not None and CLUSTER in getattr(item, "fixturenames", ()) and not cluster.is_whole:
        cluster.repair()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the last log lines of each node to the report of a failed test."""
    report = yield
    if report.failed:
        for cluster in _clusters_of(item):
            report.sections += [(f"log of {name}", text) for name, text in cluster.log_excerpts().items()]
    return report


_SHARED: Final = pytest.StashKey[Any]()
_NAMES: Final = pytest.StashKey[int]()


def _clusters_of(item: pytest.Item) -> list[Any]:
    """The clusters among the values of the test's fixtures, each once."""
    values = {id(value): value for value in getattr(item, "funcargs", {}).values()}
    return [value for value in values.values() if callable(getattr(type(value), "log_excerpts", None))]


def _cluster_of(request: pytest.FixtureRequest) -> Any:
    """The test's own cluster if it has one, else the shared one."""
    return request.getfixturevalue(OWN_CLUSTER if OWN_CLUSTER in request.fixturenames else CLUSTER)


def _unique_name(request: pytest.FixtureRequest) -> str:
    """A name that is valid for topics and groups: the name of the test, and a number."""
    number = request.config.stash.get(_NAMES, 0) + 1
    request.config.stash[_NAMES] = number
    test = re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)[:_TOPIC_NAME_CHARS]
    return f"{test}-{number}"
