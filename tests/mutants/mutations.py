"""Every mutant of a module: where it stands, what it changes, and the changed syntax tree.

A mutant's id is `file:operator:function:number`: the place among those of one operator in one function. It stays the
same while that function does, whatever changes around it.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.operators import ON_NODES, ON_STATEMENTS, is_log_call, is_text

SOURCES: Final = Path(__file__).parents[2] / "src" / "klamm"
ROOMS: Final = ("controller", "replication", "zk", "log", "net", "broker")
MODULE: Final = "<module>"
_TEXTS_FOR_PEOPLE: Final = frozenset({"__repr__", "__str__"})
_LISTS: Final = ("body", "orelse", "finalbody")


class Mutant(NamedTuple):
    file: str
    """Below `src/klamm/`."""
    operator: str
    function: str
    number: int
    lines: tuple[int, int]
    """First and last line of the statement: what runs none of them cannot notice."""
    at_import: bool
    """The statement runs when the module is imported."""
    code: str
    """Digest of the function, or of the statement where it stands in none; without docstrings and comments."""
    before: str
    after: str

    @property
    def id(self) -> str:
        return f"{self.file}:{self.operator}:{self.function}:{self.number}"

    @property
    def room(self) -> str:
        return self.file.partition("/")[0]

    @property
    def module(self) -> str:
        return "klamm." + self.file.removesuffix(".py").replace("/", ".")

    @property
    def path(self) -> Path:
        return SOURCES / self.file


class _Change(NamedTuple):
    operator: str
    function: str
    lines: tuple[int, int]
    at_import: bool
    code: str
    before: str
    after: str
    apply: Callable[[], None]


class _Place(NamedTuple):
    function: str
    lines: tuple[int, int]
    at_import: bool
    code: str


def mutants_of(file: str) -> list[Mutant]:
    """All mutants of a module, in the order of its lines."""
    return [mutant for mutant, _ in _numbered(file, (SOURCES / file).read_text())]


@cache
def all_mutants(rooms: tuple[str, ...] = ROOMS) -> list[Mutant]:
    return [mutant for file in files_of(rooms) for mutant in mutants_of(file)]


def files_of(rooms: tuple[str, ...]) -> list[str]:
    paths = [path for room in rooms for path in sorted((SOURCES / room).rglob("*.py"))]
    return [str(path.relative_to(SOURCES)) for path in paths if not path.name.startswith("__")]


def mutated_tree(file: str, source: str, mutant_id: str) -> ast.Module:
    """The syntax tree of the module with this change. Raises KeyError where there is no such mutant."""
    tree = ast.parse(source)
    for mutant, change in _numbered(file, source, tree):
        if mutant.id == mutant_id:
            change.apply()
            return ast.fix_missing_locations(tree)
    raise KeyError(mutant_id)


def _numbered(file: str, source: str, tree: ast.Module | None = None) -> Iterator[tuple[Mutant, _Change]]:
    numbers: Counter[tuple[str, str]] = Counter()
    for change in _changes(tree or ast.parse(source)):
        numbers[change.operator, change.function] += 1
        number = numbers[change.operator, change.function]
        yield Mutant(file, change.operator, change.function, number, *change[2:7]), change


def _changes(tree: ast.Module) -> Iterator[_Change]:
    yield from _in_lists(tree, _Place(MODULE, (1, 1), True, ""))


def _in_lists(owner: ast.AST, place: _Place) -> Iterator[_Change]:
    """Changes in the lists of statements of a node."""
    for name in _LISTS:
        statements = getattr(owner, name, None)
        if isinstance(statements, list):
            for i, statement in enumerate(statements):
                yield from _of_statement(statements, i, statement, place)


def _of_statement(body: list[ast.stmt], i: int, statement: ast.stmt, place: _Place) -> Iterator[_Change]:
    if is_text(statement) or is_log_call(statement) or isinstance(statement, ast.Assert | ast.Import | ast.ImportFrom):
        return
    here = place._replace(lines=_lines_of(statement), code=place.code or _digest_of(statement))
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _of_function(body, i, statement, here)
        return
    yield from _on_list(body, i, here)
    if isinstance(statement, ast.ClassDef):
        inside = _Place(_joined(place.function, statement.name), here.lines, True, "")
        yield from _in_lists(statement, inside)
        return
    yield from _on_node(statement, here, _replacing_statement(body, i))
    if not isinstance(statement, ast.Raise):
        yield from _in_expressions(statement, here)
    yield from _in_lists(statement, here)
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield from _in_lists(part, here)


def _of_function(
    body: list[ast.stmt], i: int, function: ast.FunctionDef | ast.AsyncFunctionDef, place: _Place
) -> Iterator[_Change]:
    """Defaults belong to the place where the function is defined, all else to the function."""
    name = _joined(place.function, function.name)
    if function.name in _TEXTS_FOR_PEOPLE:
        return
    for defaults in (function.args.defaults, function.args.kw_defaults):
        for n, default in enumerate(defaults):
            if default is not None:
                yield from _of_expression(default, place._replace(function=name), _replacing_item(defaults, n))
    inside = _Place(name, _first_lines(function), False, place.code)
    yield from _on_list(body, i, inside)
    yield from _in_lists(function, inside)


def _on_list(body: list[ast.stmt], i: int, place: _Place) -> Iterator[_Change]:
    """What the operators on statements make of the one at `i`; swapped steps take the next one, too."""
    for operator, variants in ON_STATEMENTS.items():
        for replacement in variants(body, i):
            count = 2 if operator == "steps-swapped" else 1
            before = " ; ".join(_text(s) for s in body[i : i + count])
            after = " ; ".join(_text(s) for s in replacement)
            if operator == "early-return":
                before, after = _text(body[i]), "return"
            yield _Change(operator, *place, before, after, _replacing_slice(body, i, count, replacement))


def _in_expressions(owner: ast.AST, place: _Place) -> Iterator[_Change]:
    """Changes in the expressions of a node, except annotations, parameters of types, and sizes."""
    if isinstance(owner, ast.BinOp) and isinstance(owner.op, ast.LShift):
        return  # a size
    for name, value in ast.iter_fields(owner):
        if name in _LISTS and isinstance(owner, ast.stmt | ast.ExceptHandler | ast.match_case):
            continue
        if name in ("annotation", "handlers", "cases") or (name == "slice" and place.at_import):
            continue
        if isinstance(value, ast.AST):
            yield from _of_expression(value, place, _replacing_field(owner, name))
        elif isinstance(value, list):
            for n, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield from _of_expression(item, place, _replacing_item(value, n))


def _of_expression(node: ast.AST, place: _Place, replace: Callable[[ast.AST], None]) -> Iterator[_Change]:
    if isinstance(node, ast.JoinedStr | ast.expr_context):
        return
    yield from _on_node(node, place, replace)
    if isinstance(node, ast.arguments):
        return
    yield from _in_expressions(node, place)


def _on_node(node: ast.AST, place: _Place, replace: Callable[[ast.AST], None]) -> Iterator[_Change]:
    for operator, variants in ON_NODES.items():
        for replacement in variants(node):
            apply = _replacing_with(replace, replacement)
            yield _Change(operator, *place, _text(node), _text(replacement), apply)


# ---- how a change is made, in the tree that it was found in


def _replacing_with(replace: Callable[[ast.AST], None], replacement: ast.AST) -> Callable[[], None]:
    return lambda: replace(replacement)


def _replacing_field(owner: ast.AST, name: str) -> Callable[[ast.AST], None]:
    return lambda new: setattr(owner, name, new)


def _replacing_item(items: list[ast.AST] | list[ast.expr] | list[ast.expr | None], n: int) -> Callable[[ast.AST], None]:
    def replace(new: ast.AST) -> None:
        items[n] = new  # type: ignore[call-overload]

    return replace


def _replacing_statement(body: list[ast.stmt], i: int) -> Callable[[ast.AST], None]:
    def replace(new: ast.AST) -> None:
        body[i] = new  # type: ignore[call-overload]

    return replace


def _replacing_slice(body: list[ast.stmt], i: int, count: int, new: list[ast.stmt]) -> Callable[[], None]:
    def replace() -> None:
        body[i : i + count] = new

    return replace


# ---- places and texts


def _joined(owner: str, name: str) -> str:
    return name if owner == MODULE else f"{owner}.{name}"


def _lines_of(statement: ast.stmt) -> tuple[int, int]:
    """The lines of a simple statement, or of the head of one with a body."""
    body = getattr(statement, "body", None)
    end = statement.end_lineno or statement.lineno
    if isinstance(body, list) and body and not isinstance(statement, ast.ClassDef):
        end = max(statement.lineno, body[0].lineno - 1)
    if isinstance(statement, ast.Try):
        return statement.lineno, max(end, body[0].lineno if isinstance(body, list) else end)
    return statement.lineno, end


def _first_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, int]:
    first = next((s for s in function.body if not is_text(s)), function.body[0])
    return _lines_of(first)


def _digest_of(node: ast.stmt) -> str:
    """Of a class nobody asks: each of its members has its own."""
    if isinstance(node, ast.ClassDef):
        return ""
    copied = ast.parse(ast.unparse(node))
    for inner in ast.walk(copied):
        body = getattr(inner, "body", None)
        if isinstance(body, list):
            body[:] = [statement for statement in body if not is_text(statement)]
    return sha256(ast.dump(copied).encode()).hexdigest()[:16]


def _text(node: ast.AST) -> str:
    """One line of source; of a statement with a body, its head."""
    if isinstance(node, ast.comprehension):
        node = ast.GeneratorExp(ast.Name("..."), [node])
    lines = ast.unparse(ast.fix_missing_locations(node)).splitlines()
    return " ".join(line.strip() for line in lines[:2])[:160]
