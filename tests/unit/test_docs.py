"""What docs/ says where things are is so: files, links and make targets exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")))
BASES = (ROOT, ROOT / "src", ROOT / "src/klamm", ROOT / "docs", ROOT / "tests/differential")
"""Where the paths in docs begin; those in judge.md with its own folder."""


def named_paths(text: str) -> Iterator[str]:
    """Paths with a folder in them; `module.py` alone stands for one in a folder named before."""
    for name in re.findall(r"`([\w./-]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if "/" in name.rstrip("/") and not name.startswith("/") and re.search(r"(/|\.(py|pyi|toml|md))$", name):
            yield name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_named_in_a_documentation_page_exists(page: Path) -> None:
    missing = [p for p in named_paths(page.read_text()) if not any((base / p).exists() for base in BASES)]

    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_in_a_documentation_page_leads_to_an_existing_file(page: Path) -> None:
    targets = [t for t in re.findall(r"\]\(([^)#]+)", page.read_text()) if not t.startswith("http")]

    assert [t for t in targets if not (page.parent / t).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_named_in_a_documentation_page_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:`| {4})make ([a-z][a-z-]*)", page.read_text())

    assert [
        t for t in named if t not in targets and not (ROOT / f"benchmarks/{t.removeprefix('bench-')}.py").exists()
    ] == []


def test_each_decision_has_a_number_of_its_own() -> None:
    numbers = [path.name[:4] for path in sorted((ROOT / "docs/decisions").glob("*.md"))]

    assert numbers == [f"{n:04}" for n in range(1, len(numbers) + 1)]
