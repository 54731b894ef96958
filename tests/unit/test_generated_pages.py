"""Pages in docs/ equal the tables from which `make docs` generates them."""

from pathlib import Path

import pytest
from tests import generated_pages
from tests.generated_pages import DOCS, PAGES, is_current, main


@pytest.mark.parametrize("name", PAGES)
def test_each_generated_documentation_page_equals_the_output_of_its_generator(name: str) -> None:
    assert is_current(name)


def test_an_outdated_generated_page_fails_the_check_and_is_regenerated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in PAGES:
        (tmp_path / name).write_text((DOCS / name).read_text())
    monkeypatch.setattr(generated_pages, "DOCS", tmp_path)
    page = tmp_path / "simulation.md"
    page.write_text(page.read_text().replace("| 1 | kill |", "| 1 | cuddle |"))

    assert main(["--check"]) == 1
    assert "simulation.md" in capsys.readouterr().err
    assert main([]) == 0
    assert page.read_text() == (DOCS / "simulation.md").read_text()
