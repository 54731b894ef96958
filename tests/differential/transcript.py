"""Recorded steps and differences as text: one line per fact, so that a person can read and compare them.

A scenario is a section that begins with `## NAME`. A step begins with `* ` and what was done; below it, indented:

    answer: TEXT              the answer as a whole; `answer SUBJECT: TEXT`, where it has parts; `answer - TEXT`, a list
    tree PATH: TEXT           a znode that changed: content, version and owner; `tree PATH gone`
    writes PATH: TEXT         one write of the node under test; several lines in order
    order TOPIC: KIND > KIND  the order in which the node wrote to different places
    refused: TEXT             a write that ZooKeeper refused
    to BROKER BROKER          what each of these brokers received, one line per subject and request

A step that an earlier scenario of the same file has, too, is written as `as in NAME`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Steps = list[dict[str, Any]]
Sections = dict[str, list[str]]

_SECTION = "## "
_STEP = "* "
_SAME = "  as in "
_GONE = " gone"
_THEN = " > "
_EMPTY: dict[str, object] = {"{}": {}, "[]": []}


def sections_to_text(sections: Mapping[str, Iterable[str]]) -> str:
    return "\n".join("\n".join([f"{_SECTION}{name}", *lines, ""]) for name, lines in sections.items())


def text_to_sections(text: str) -> Sections:
    sections: Sections = {}
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith(_SECTION):
            lines = sections[line.removeprefix(_SECTION)] = []
        elif line:
            lines.append(line)
    return sections


# ---- steps


def steps_to_lines(steps: Steps) -> list[str]:
    return [line for step in steps for line in _step_lines(step)]


def share_first_steps(sections: Mapping[str, list[str]]) -> Sections:
    """Scenarios mostly begin the same way: the first step is written out once."""
    owners: dict[tuple[str, ...], str] = {}
    shared: Sections = {}
    for name, lines in sections.items():
        end = _end_of_first_step(lines)
        first = tuple(lines[:end])
        owner = owners.setdefault(first, name)
        shared[name] = lines if owner == name or end < 2 else [lines[0], f"{_SAME}{owner}", *lines[end:]]
    return shared


def own_first_step(name: str, sections: Mapping[str, list[str]]) -> list[str]:
    """The lines of a section, with its first step written out."""
    lines = sections[name]
    if len(lines) < 2 or not lines[1].startswith(_SAME):
        return lines
    other = sections[lines[1].removeprefix(_SAME)]
    return other[: _end_of_first_step(other)] + lines[2:]


def _end_of_first_step(lines: Sequence[str]) -> int:
    return next((i for i, line in enumerate(lines) if i and line.startswith(_STEP)), len(lines))


def _step_lines(step: Mapping[str, Any]) -> Iterator[str]:
    """The lines of one step."""
    yield _STEP + _quoted(step["did"])
    if "answer" in step:
        yield from _answer_lines(step["answer"])
    for path, text in step.get("tree", {}).items():
        yield f"  tree {path}{_GONE}" if text is None else f"  tree {path}: {_quoted(text)}"
    for path, texts in step.get("writes", {}).items():
        yield from (f"  writes {path}: {_quoted(text)}" for text in texts)
    for topic, kinds in step.get("order", {}).items():
        yield f"  order {_quoted(topic)}: {_THEN.join(kinds)}"
    yield from (f"  refused: {_quoted(text)}" for text in step.get("refused", ()))
    for brokers, received in _by_received(step.get("requests", {})).items():
        yield f"  to {brokers}"
        yield from (f"    {subject}: {_quoted(text)}" for subject, texts in received.items() for text in texts)


def _answer_lines(answer: Any) -> Iterator[str]:
    """The lines of a response."""
    if isinstance(answer, str):
        yield f"  answer: {_quoted(answer)}"
    elif not answer:
        yield f"  answer {answer!r}"
    elif isinstance(answer, dict):
        yield from (f"  answer {_quoted(subject)}: {_quoted(text)}" for subject, text in answer.items())
    else:
        yield from (f"  answer - {_quoted(text)}" for text in answer)


def _by_received(requests: Mapping[str, Any]) -> dict[str, Any]:
    """Brokers that received the same are named together."""
    groups: list[tuple[list[str], Any]] = []
    for broker, received in requests.items():
        for brokers, known in groups:
            if known == received:
                brokers.append(broker)
                break
        else:
            groups.append(([broker], received))
    return {" ".join(brokers): received for brokers, received in groups}


def lines_to_steps(lines: Iterable[str]) -> Steps:
    steps: Steps = []
    received: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith(_STEP):
            steps.append({"did": _plain(line.removeprefix(_STEP))})
        elif line.startswith("    "):
            subject, text = line.strip().split(": ", 1)
            received.setdefault(subject, []).append(_plain(text))
        elif line.startswith("  to "):
            received = {}
            requests = steps[-1].setdefault("requests", {})
            requests |= dict.fromkeys(line.removeprefix("  to ").split(), received)
        else:
            _read_fact(steps[-1], line.removeprefix("  "))
    return steps


def _read_fact(step: dict[str, Any], line: str) -> None:
    """Add the fact of one line to a step."""
    kind, _, fact = line.partition(" ")
    if kind == "answer:":
        step["answer"] = _plain(fact)
    elif kind == "answer" and fact in _EMPTY:
        step["answer"] = _EMPTY[fact]
    elif kind == "answer" and fact.startswith("- "):
        step.setdefault("answer", []).append(_plain(fact.removeprefix("- ")))
    elif kind == "refused:":
        step.setdefault("refused", []).append(_plain(fact))
    elif kind == "tree" and fact.endswith(_GONE) and ": " not in fact:
        step.setdefault("tree", {})[fact.removesuffix(_GONE)] = None
    else:
        subject, text = fact.split(": ", 1)
        facts = step.setdefault(kind, {})
        if kind == "writes":
            facts.setdefault(subject, []).append(_plain(text))
        elif kind == "order":
            facts[_plain(subject)] = text.split(_THEN)
        else:
            assert kind in ("tree", "answer"), line
            facts[_plain(subject)] = _plain(text)


# ---- differences


class Difference(NamedTuple):
    step: int
    did: str
    place: str
    """Where in the step, as `requests 2 a-0` or `answer a-0`."""
    kafka: Any
    klamm: Any

    def __str__(self) -> str:
        return f"step {self.step}, {self.did}: {self.place}\n    Kafka: {self.kafka}\n    klamm: {self.klamm}"


def differences_to_lines(differences: Iterable[Difference]) -> Iterator[str]:
    """Like the steps they are of; a side that has nothing in that place has no line."""
    step = None
    for difference in differences:
        if step != difference.step:
            step = difference.step
            yield f"{_STEP}{step} {_quoted(difference.did)}"
        yield f"  {difference.place}"
        for who in ("kafka", "klamm"):
            value = getattr(difference, who)
            if isinstance(value, list):
                yield from (f"    {who} - {_quoted(text)}" for text in value)
            elif value is not None:
                yield f"    {who}: {_quoted(value)}"


def lines_to_differences(lines: Iterable[str]) -> list[Difference]:
    differences: list[Difference] = []
    step, did = 0, ""
    for line in lines:
        if line.startswith(_STEP):
            number, did = line.removeprefix(_STEP).split(" ", 1)
            step, did = int(number), _plain(did)
        elif line.startswith("    "):
            who, text = line.strip()[:5], line.strip()[5:]
            values = [_plain(text[3:])] if text.startswith(" - ") else _plain(text[2:])
            before = getattr(differences[-1], who)
            found: dict[str, Any] = {who: values if before is None else before + values}
            differences[-1] = differences[-1]._replace(**found)
        else:
            differences.append(Difference(step, did, line.strip(), None, None))
    return differences


def _quoted(text: str) -> str:
    """As it is, where a line can hold it so."""
    is_plain = text and text == text.strip() and "\n" not in text and text[0] != '"'
    return text if is_plain else json.dumps(text)


def _plain(text: str) -> str:
    """The text of a quoted line."""
    return str(json.loads(text)) if text.startswith('"') else text
