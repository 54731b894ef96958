"""Which changes each operator makes of a small piece of code, and which it leaves alone."""

import ast

import pytest
from tests.mutants.mutations import _numbered as numbered
from tests.mutants.mutations import mutated_tree

CASES = {
    "guard-removed": ("if a:\n        return b\n    c()", ["pass\n    c()"]),
    "guard-removed, any other branch": ("if a:\n        b()\n    c()", ["b()\n    c()"]),
    "guard-removed, with an else": ("if a:\n        b()\n    else:\n        c()", []),
    "call-dropped": ("await a()\n    b()", ["pass\n    b()", "await a()\n    pass"]),
    "call-dropped, log lines": ("log.info('a')\n    self._log.error('b')", []),
    "steps-swapped": ("a.b()\n    c.d = e", ["c.d = e\n    a.b()"]),
    "steps-swapped, the second needs the first": ("a = b()\n    c(a)", []),
    "steps-swapped, local names only": ("a = b()\n    c = d()", []),
    "error-not-handled": (
        "try:\n        a()\n    except E:\n        b()",
        ["try:\n        a()\n    except E:\n        raise"],
    ),
    "early-return": ("a()\n    b()", ["return"]),
    "early-return, of a generator": ("yield a\n    b()", ["return\n    yield"]),
    "early-return, one step": ("return a", []),
    "condition-negated": ("return a if b else c", ["return a if not b else c"]),
    "comparison-shifted": ("return a < b == c", ["return a <= b == c", "return a < b != c"]),
    "comparison-shifted, membership": ("return a in b", ["return a not in b"]),
    "comparison-shifted, identity": ("return a is not b", ["return a is b"]),
    "operator-changed": ("return a and b", ["return a or b"]),
    "operator-changed, sets": ("return a | b", ["return a & b"]),
    "operator-changed, difference": ("return a - b", ["return a"]),
    "operator-changed, types": ("return isinstance(a, int | Broker)", []),
    "operator-changed, text": ("return 'a' + b", []),
    "collection-changed": ("return {a, b}", ["return {a}", "return {b}"]),
    "collection-changed, filter": ("return [a for a in b if c]", ["return [a for a in b]"]),
    "collection-changed, fixed tuples": ("return (a, b)", []),
    "collection-changed, tables": ("return {a: b, c: d}", ["return {a: b}", "return {c: d}"]),
    "constant-changed": ("return 3", ["return 4", "return 2"]),
    "constant-changed, truth": ("return True", ["return False"]),
    "constant-changed, sizes and texts": ("a = 'b'\n    return 1000", []),
    "constant-changed, powers of two": ("a = 1 << 20", []),
    "constant-changed, annotations and assertions": ("a: Literal[3] = b\n    assert a > 3", []),
    "none-returned": ("return a", ["return"]),
    "none-returned, already": ("return None", []),
}


def mutated_bodies(body: str, operator: str) -> list[str]:
    source = f"async def function():\n    {body}\n"
    ids = [m.id for m, _ in numbered("controller/some.py", source) if m.operator == operator]
    texts = [ast.unparse(mutated_tree("controller/some.py", source, each)) for each in ids]
    return [text.removeprefix("async def function():\n    ") for text in texts]


@pytest.mark.parametrize(("name", "body", "expected"), [(n, *case) for n, case in CASES.items()], ids=CASES)
def test_each_mutation_operator_produces_exactly_the_listed_code_changes(
    name: str, body: str, expected: list[str]
) -> None:
    assert mutated_bodies(body, name.partition(",")[0]) == expected


def test_mutation_operators_do_not_change_docstrings_and_message_texts() -> None:
    source = '"""1."""\nclass A:\n    """2."""\n    def __repr__(self):\n        return a(1)\n'

    assert not list(numbered("controller/some.py", source))


def test_mutants_of_default_arguments_and_class_attributes_are_marked_as_run_at_import() -> None:
    source = "class A:\n    b: int = 1\n    def c(self, d=True):\n        return d\n"

    found = {(m.function, m.before): m.at_import for m, _ in numbered("controller/some.py", source)}

    assert found == {("A", "1"): True, ("A.c", "True"): True, ("A.c", "return d"): False}
