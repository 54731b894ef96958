"""Which lines a node writes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from klamm.telemetry.logs import LOGGERS, configure_logs

SOURCE = Path(__file__).parents[3] / "src" / "klamm"


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_every_logger_name_used_by_a_module_is_in_the_list_of_loggers() -> None:
    found = [re.findall(r"structlog\.get_logger\((.*?)\)", path.read_text()) for path in SOURCE.rglob("*.py")]

    assert {name for names in found for name in names} == {f'"{name}"' for name in LOGGERS}


def test_a_changed_log_level_applies_from_the_next_log_line(capsys: pytest.CaptureFixture[str]) -> None:
    levels = configure_logs("warning")
    net, topics = structlog.get_logger("net"), structlog.get_logger("topics")

    net.info("unheard")
    levels.set("net", "DEBUG")
    net.debug("heard")
    topics.info("unheard")
    topics.warning("loud")
    levels.unset("net")
    net.info("unheard")

    lines = capsys.readouterr().out.splitlines()
    assert [re.findall(r"event=(\w+)", line) for line in lines] == [["heard"], ["loud"]]
