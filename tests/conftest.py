"""Real servers as fixtures. Each test that asks for one gets its own, in its own directory and on its own port."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from tests.support import zookeeper as zk
from tests.support.forked_klamm import spawn_node
from tests.support.spark_files import ONE_SPARK_SESSION
from xdist.scheduler import LoadFileScheduling

from klamm.embedded import nodes
from klamm.embedded.zookeeper import ZooKeeperServer

nodes.spawn = spawn_node  # type: ignore[assignment, attr-defined]
zk.map_loaded_classes()
gc.disable()  # until all tests are collected: what they make stays
gc.set_threshold(50_000, 20, 100)  # the default of 700 new objects costs a twelfth of the processor time of tests
settings.register_profile("klamm", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("prove", settings.get_profile("klamm"), max_examples=2_000)
settings.load_profile("klamm")  # no test depends on the speed of a machine
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)  # with rich installed, each logged exception would cost a tenth of a second and more


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--brokers", choices=("klamm", "apache"), default="klamm", help="whose brokers clients talk to")
    parser.addoption("--sequences", type=int, default=40, help="sequences for the model ZooKeeper and a real one")
    parser.addoption("--damage-cases", type=int, default=300, help="damaged files in log directories, by number")
    parser.addoption("--all-regressions", action="store_true", help="more seeds of regressions and scripts")
    parser.addoption("--connector-cases", action="store_true", help="200 reads beside Spark's own connector")
    parser.addoption("--all-generated-scripts", action="store_true", help="every script generated for the controller")
    parser.addoption("--client-rounds", type=int, default=1, help="how often clients and brokers are killed")
    parser.addoption("--journals", type=int, default=3, help="simulated clusters whose journals become tables")
    parser.addoption("--planted-damage", type=int, default=60, help="flips, cuts and gaps in replicas, by number")
    parser.addoption("--every-crash", action="store_true", help="a crash at each file operation of a log compaction")
    parser.addoption("--stored-logs", type=int, default=30, help="generated logs to read from files and by Fetch")
    parser.addoption(
        "--compacted-logs", type=int, default=25, help="drawn logs to compact beside Apache Kafka's cleaner"
    )
    parser.addoption("--records", type=int, default=1_000, help="records per client, codec and kind of producer")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files with Spark first: one worker runs many of them, and would be busy after all others."""
    items.sort(key=lambda item: item.nodeid.partition("::")[0] not in ONE_SPARK_SESSION)


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of garbage collections: a full one would pass a million objects."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)  # mutants run without pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each test file goes to one worker of pytest-xdist; files that share a Spark session go to the same one."""
    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope
    scheduler._split_scope = lambda nodeid: ONE_SPARK_SESSION.get(file_of(nodeid), file_of(nodeid))
    return scheduler


@pytest.fixture(autouse=True)
def log_configuration() -> Iterator[None]:
    """Undo what a test configures of the logs: the next one in this process may look at what is logged."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session")
def record_count(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--records"))


@pytest.fixture(scope="session")
def compacted_logs(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--compacted-logs"))


@pytest.fixture(scope="session")
def client_rounds(request: pytest.FixtureRequest) -> int:
    """How often a test kills its clients and brokers: once, and in `make prove` many times."""
    return int(request.config.getoption("--client-rounds"))


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A running server with nothing in it; `.connect_string`, `.port`, stop/start, kill, pause/resume."""
    server = zk.server(tmp_path / "zookeeper")
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def shared_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One running server for many tests: keep to a chroot of your own, and leave it running."""
    server = zk.server(tmp_path_factory.mktemp("shared-zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def zookeeper_ensemble(tmp_path: Path) -> Iterator[zk.Ensemble]:
    """Three running servers; `.connect_string` names all, `.leader`, `.followers`, `.servers` each."""
    ensemble = zk.Ensemble(tmp_path / "ensemble")
    ensemble.start()
    yield ensemble
    ensemble.kill()
