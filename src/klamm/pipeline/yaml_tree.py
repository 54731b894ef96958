"""A YAML file as a tree whose every node knows its line. Scalars stay text: the field decides what they mean."""

from typing import Final, NamedTuple

import yaml

from klamm.model.errors import UsageError

_NULL: Final = "tag:yaml.org,2002:null"
_REMEDY: Final = "Correct the file; a text with a colon, a quote or a brace in it needs quotes around it."


class BadFile(UsageError):
    """A pipeline's file that cannot be used: the text names file, line, field, value and remedy."""


class Scalar(NamedTuple):
    """A text. `line` counts from 1."""

    text: str
    line: int


class Sequence(NamedTuple):
    """A list of nodes. `line` counts from 1."""

    items: "tuple[Node, ...]"
    line: int


class Mapping(NamedTuple):
    """Nodes by name, in the order of the file. `line` counts from 1."""

    items: "dict[str, Node]"
    line: int


Node = Scalar | Sequence | Mapping


def parse_yaml(name: str, text: str) -> Mapping:
    """Return the tree of a file; `name` is for errors. Raises BadFile unless the file is one mapping."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f", line {mark.line + 1}"
        raise BadFile(f"{name}{where}: the file is not YAML: {error.problem or error.context}. {_REMEDY}") from None
    except yaml.YAMLError as error:
        raise BadFile(f"{name}: the file is not YAML: {error}. {_REMEDY}") from None
    if root is None:
        raise BadFile(f"{name}: the file is empty. Begin with `pipeline: NAME`.")
    try:
        tree = _convert(name, root, 1)
    except RecursionError:
        raise BadFile(f"{name}: a value contains itself, or is nested too deeply. Remove the alias `*...`.") from None
    if not isinstance(tree, Mapping):
        raise BadFile(f"{name}, line 1: the file is not a mapping of fields. Begin with `pipeline: NAME`.")
    return tree


def _convert(name: str, node: yaml.Node, line: int) -> Node:
    """The node of PyYAML, whose name stands in this line, as one of ours.

    Raises BadFile for names that are no text, or given twice.
    """
    if isinstance(node, yaml.ScalarNode):
        return Scalar("" if node.tag == _NULL else node.value, line)
    if isinstance(node, yaml.SequenceNode):
        return Sequence(tuple(_convert(name, item, item.start_mark.line + 1) for item in node.value), line)
    items: dict[str, Node] = {}
    for key, value in node.value:
        at = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or not key.value:
            raise BadFile(f"{name}, line {at}: the name of a field must be a text. Correct it.")
        if key.value in items:
            raise BadFile(f"{name}, line {at}: the field {key.value} is given twice. Remove one of the two.")
        items[key.value] = _convert(name, value, at)
    return Mapping(items, line)
