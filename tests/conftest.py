"""Real servers as fixtures. Each test that asks for one gets its own, in its own directory and on its own port."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from tests.support import zookeeper as zk

from klamm.embedded.zookeeper import ZooKeeperServer

settings.register_profile("klamm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
    parser.addoption("--sequences", type=int, default=100, help="sequences for the model ZooKeeper and a real one")
    parser.addoption("--damage-cases", type=int, default=300, help="damaged files in log directories, by number")
    parser.addoption("--all-regressions", action="store_true", help="seeds of regressions that have a script, too")
    parser.addoption("--connector-cases", action="store_true", help="200 reads beside Spark's own connector")
    parser.addoption("--all-generated-scripts", action="store_true", help="every script generated for the controller")
    parser.addoption("--client-rounds", type=int, default=1, help="how often clients and brokers are killed")
    parser.addoption("--journals", type=int, default=3, help="simulated clusters whose journals become tables")
    parser.addoption("--planted-damage", type=int, default=60, help="flips, cuts and gaps in replicas, by number")
    parser.addoption("--stored-logs", type=int, default=30, help="generated logs to read from files and by Fetch")
    parser.addoption("--records", type=int, default=1_000, help="records per client, codec and kind of producer")


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
