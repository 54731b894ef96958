"""Every function of klamm has a docstring, so that a reader need not open its body."""

import ast
from collections.abc import Iterator
from pathlib import Path

import klamm

SOURCES = Path(klamm.__file__).parent


def without_docstring(source: str) -> Iterator[str]:
    """The functions without a docstring; special methods have the meaning that Python gives them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_special = node.name.startswith("__") and node.name.endswith("__")
            if not is_special and not (ast.get_docstring(node) or "").strip():
                yield f"{node.name}, line {node.lineno}"


def test_every_function_of_klamm_has_a_docstring() -> None:
    missing = {
        str(path.relative_to(SOURCES)): found
        for path in sorted(SOURCES.rglob("*.py"))
        if (found := list(without_docstring(path.read_text())))
    }

    assert missing == {}, "say in a docstring what each of these functions does or returns"


def test_the_docstring_check_finds_a_function_without_docstring_at_any_nesting() -> None:
    source = '''
class A:
    def __init__(self): ...
    def documented(self):
        """Return nothing."""
        def nested(): ...
    async def method(self): ...
    def blank(self):
        """ """
def _private(): ...
'''

    assert sorted(name.split(",")[0] for name in without_docstring(source)) == ["_private", "blank", "method", "nested"]
