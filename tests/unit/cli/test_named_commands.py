"""Each `klamm ...` that a message, a remedy, a docstring or a page names is a command with the options beside it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from klamm.cli.app import COMMANDS, load_command

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
NAMED = re.compile(r"klamm ([a-z][a-z-]*)(.*?)(?=klamm |[;`|]|[.:] |$)", re.DOTALL)


def texts_of(source: str) -> Iterator[str]:
    """Every text in the source of a module; nothing stands for what an f-string puts in."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def unknown_options(text: str) -> Iterator[str]:
    """The options that a text gives to a command of klamm which does not have them."""
    for name, rest in NAMED.findall(text):
        if name not in COMMANDS:
            continue  # a sentence about klamm
        command: Any = load_command(name)
        words = rest.split()
        while words and words[0] in getattr(command, "commands", ()):
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", " ".join(words)):
            if option not in known | {"-h", "--help"}:
                yield f"klamm {name} {rest.strip()}: no option {option}"


def test_the_check_of_named_commands_finds_an_option_that_the_command_lacks() -> None:
    assert list(unknown_options("run klamm elect --election-type preferred -b one:9092; then klamm audit")) == []
    assert list(unknown_options("klamm reassign plan --topic orders --zookeeper zk:2181")) == [
        "klamm reassign plan --topic orders --zookeeper zk:2181: no option --zookeeper"
    ]


def test_every_klamm_command_named_in_the_code_exists_with_its_options() -> None:
    modules = sorted((ROOT / "src").rglob("*.py"))

    assert [found for m in modules for text in texts_of(m.read_text()) for found in unknown_options(text)] == []


def test_every_klamm_command_named_in_the_documentation_exists_with_its_options() -> None:
    assert [found for page in PAGES for found in unknown_options(page.read_text())] == []


def test_the_readme_lists_every_klamm_command() -> None:
    readme = (ROOT / "README.md").read_text()

    assert [name for name in COMMANDS if not re.search(rf"^\| .*`klamm {name}\b", readme, re.MULTILINE)] == []
