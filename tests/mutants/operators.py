"""The operators: which small changes a piece of syntax allows. Each is one bug that somebody could write.

An operator gets a node, or the list of statements that a node stands in, and yields replacements. What cannot change
the behaviour, or only a text for people, is left out: annotations, docstrings, assertions, log lines, messages.
"""

import ast
from collections.abc import Callable, Iterator
from copy import copy
from typing import Final, TypeVar

N = TypeVar("N", bound=ast.AST)

MAX_COUNT: Final = 100
"""Numbers from here on are sizes and timeouts: one more or less is no bug."""
_LOGGERS: Final = frozenset({"log", "logger", "_log", "_logger"})
_LOG_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception"})
_SHIFTED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_JUMPS: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_COMPOUND: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith, ast.Match)
_STEPS: Final = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)
Expressions = Callable[[ast.AST], Iterator[ast.AST]]
Statements = Callable[[list[ast.stmt], int], Iterator[list[ast.stmt]]]


# ---- on a statement among others


def remove_guard(body: list[ast.stmt], i: int) -> Iterator[list[ast.stmt]]:
    """A branch that leaves the block is never taken; any other one, always."""
    node = body[i]
    if isinstance(node, ast.If) and not node.orelse:
        leaves = isinstance(node.body[-1], _JUMPS)
        yield [ast.Pass()] if leaves else node.body


def drop_call(body: list[ast.stmt], i: int) -> Iterator[list[ast.stmt]]:
    """A call whose result nobody uses is not made."""
    if _is_call(body[i]):
        yield [ast.Pass()]


def swap_steps(body: list[ast.stmt], i: int) -> Iterator[list[ast.stmt]]:
    """Two steps, one of them a call for its effect, happen in the other order, where no name stands in the way."""
    if i + 1 == len(body):
        return
    first, second = body[i], body[i + 1]
    if not (isinstance(first, _STEPS) and isinstance(second, _STEPS)) or is_text(first) or is_text(second):
        return
    if not (_is_call(first) or _is_call(second)) or not (_has_effect(first) and _has_effect(second)):
        return
    if _stored(first) & _names(second) or _stored(second) & _names(first):
        return
    yield [second, first]


def reraise(body: list[ast.stmt], i: int) -> Iterator[list[ast.stmt]]:
    """An error is not handled."""
    node = body[i]
    if isinstance(node, ast.Try):
        for n, handler in enumerate(node.handlers):
            if not isinstance(handler.body[-1], ast.Raise):
                changed = copy(handler)
                changed.body = [ast.Raise()]
                handlers = [*node.handlers[:n], changed, *node.handlers[n + 1 :]]
                yield [_with(node, handlers=handlers)]


def return_early(body: list[ast.stmt], i: int) -> Iterator[list[ast.stmt]]:
    """A function of several statements does nothing."""
    node = body[i]
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name == "__init__":
        return
    text, rest = (node.body[:1], node.body[1:]) if is_text(node.body[0]) else ([], node.body)
    if len(rest) > 1 or (
        rest and isinstance(rest[0], ast.If | ast.For | ast.AsyncFor | ast.While | ast.Try | ast.With)
    ):
        nothing: list[ast.stmt] = [ast.Return()]
        if _yields(node):
            nothing.append(ast.Expr(ast.Yield()))
        yield [_with(node, body=[*text, *nothing])]


# ---- on an expression, or a statement by itself


def negate_condition(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If | ast.IfExp):
        test = node.test
        is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        yield _with(node, test=test.operand if is_negated else ast.UnaryOp(ast.Not(), test))  # type: ignore[attr-defined]


def shift_comparison(node: ast.AST) -> Iterator[ast.AST]:
    """`<` and `<=`, `==` and `!=`, `in` and `not in`, `is` and `is not`."""
    if isinstance(node, ast.Compare):
        for n, op in enumerate(node.ops):
            yield _with(node, ops=[*node.ops[:n], _SHIFTED[type(op)](), *node.ops[n + 1 :]])


def change_operator(node: ast.AST) -> Iterator[ast.AST]:
    """`and` and `or`; `|` and `&`; `+` and `-`; what is subtracted, stays."""
    if isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.BinOp) and not (_is_text_value(node.left) or _is_text_value(node.right)):
        if isinstance(node.op, ast.Add) and not (_is_sequence(node.left) or _is_sequence(node.right)):
            yield _with(node, op=ast.Sub())
        elif isinstance(node.op, ast.Sub):
            yield node.left
        elif isinstance(node.op, ast.BitOr) and not (_is_type(node.left) or _is_type(node.right)):
            yield _with(node, op=ast.BitAnd())
        elif isinstance(node.op, ast.BitAnd):
            yield _with(node, op=ast.BitOr())


def change_collection(node: ast.AST) -> Iterator[ast.AST]:
    """The first or the last element of a set, list or table is left out; a comprehension loses its filter."""
    if isinstance(node, ast.Set | ast.List) or (
        isinstance(node, ast.Tuple) and any(isinstance(e, ast.Starred) for e in node.elts)
    ):
        if isinstance(node.ctx if not isinstance(node, ast.Set) else None, ast.Store | ast.Del):
            return
        yield from (_with(node, elts=elements) for elements in _shorter(node.elts))
    elif isinstance(node, ast.Dict) and len(node.keys) > 1:
        yield _with(node, keys=node.keys[:-1], values=node.values[:-1])
        yield _with(node, keys=node.keys[1:], values=node.values[1:])
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield _with(node, ifs=[])


def change_constant(node: ast.AST) -> Iterator[ast.AST]:
    """True and False; small numbers, one up and one down."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield _with(node, value=not node.value)
        elif isinstance(node.value, int) and node.value < MAX_COUNT:
            yield _with(node, value=node.value + 1)
            yield _with(node, value=node.value - 1)


def return_none(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Return) and node.value is not None and not _is_falsy(node.value):
        yield _with(node, value=None)


ON_STATEMENTS: Final[dict[str, Statements]] = {
    "guard-removed": remove_guard,
    "call-dropped": drop_call,
    "steps-swapped": swap_steps,
    "error-not-handled": reraise,
    "early-return": return_early,
}
ON_NODES: Final[dict[str, Expressions]] = {
    "condition-negated": negate_condition,
    "comparison-shifted": shift_comparison,
    "operator-changed": change_operator,
    "collection-changed": change_collection,
    "constant-changed": change_constant,
    "none-returned": return_none,
}


# ---- what a node is


def is_text(node: ast.AST) -> bool:
    """A docstring, or the description of an attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_log_call(node: ast.AST) -> bool:
    """A line for people: `log.info(...)`."""
    call = node.value if isinstance(node, ast.Expr) else None
    function = call.func if isinstance(call, ast.Call) else None
    if not isinstance(function, ast.Attribute) or function.attr not in _LOG_LEVELS:
        return False
    owner = function.value
    return (owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")) in _LOGGERS


def _is_call(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    value = value.value if isinstance(value, ast.Await) else value
    return isinstance(value, ast.Call) and not is_log_call(node)


def _has_effect(node: ast.AST) -> bool:
    """Whether it does something beyond setting a local name."""
    return not is_log_call(node) and any(
        isinstance(n, ast.Call)
        or (isinstance(n, ast.Attribute | ast.Subscript) and isinstance(n.ctx, ast.Store | ast.Del))
        for n in ast.walk(node)
    )


def _stored(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store | ast.Del)}


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _yields(function: ast.AST) -> bool:
    """Whether the function is a generator; those inside of it do not count."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False


def _is_text_value(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _is_falsy(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _is_sequence(node: ast.AST) -> bool:
    return isinstance(node, ast.List | ast.Tuple | ast.ListComp)


def _is_type(node: ast.AST) -> bool:
    """An operand of a union of types, as far as names tell."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    is_none = isinstance(node, ast.Constant) and node.value is None
    return is_none or (name[:1].isupper() and not name.isupper()) or name in {"int", "str", "bytes", "float", "bool"}


def _shorter(elements: list[ast.expr]) -> Iterator[list[ast.expr]]:
    if elements:
        yield elements[:-1]
    if len(elements) > 1:
        yield elements[1:]


def _with(node: N, **changes: object) -> N:
    """A copy of the node with other fields; what stands in it is shared."""
    changed = copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed
