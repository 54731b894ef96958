"""Shrinks the script of a run that violates an invariant to a shorter one that violates the same invariant.

Actions are dropped by delta debugging; then the cluster becomes smaller and its order plain; then times and amounts
become smaller; repeated while anything helps. Source: Zeller and Hildebrandt, TSE 2002 (ddmin).
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, Final

from klamm.sim.cluster import Outcome, run_script
from klamm.sim.schedules import Policy
from klamm.sim.scripts.script import FIRST_TOPICS_S, Script, encode_script, options_beyond_plain

_PLAIN_PACE: Final = {"pause_s": 1.0, "work": 1.0}
_SHORT_GAP_S: Final = 0.5
_LONG_GAP_S: Final = 10.0
_RUN_MODULES: Final = {
    "klamm.sim.scripts.options": "klamm.sim.cluster",
    "klamm.sim.cluster_tier.options": "klamm.sim.cluster_tier.run",
}
"""Which module runs scripts with the options of a module."""


def violated_invariant(violation: str | None) -> str:
    """The name of the violated invariant, without details; empty without a violation."""
    return (violation or "").partition(":")[0].partition("(")[0]


class Shrinker:
    """Shrinks the script of a failing run with `shrink()`; calls `may_go_on` before each run."""

    def __init__(
        self,
        found: Outcome,
        may_go_on: Callable[[], bool] = lambda: True,
        run: Callable[[Script], Outcome] = lambda script: run_script(script),
    ) -> None:
        assert found.violation
        self._run = run
        self._rule = violated_invariant(found.violation)
        self._may_go_on = may_go_on
        self.best = found
        self.runs = 0

    def shrink(self) -> Outcome:
        """The outcome with the smallest script found that violates the same invariant."""
        self._try_variants_once(_with_fewer_options)
        size = None
        while size != (size := _size(self.best.script)) and self._may_go_on():
            self._drop_actions()
            for make in (_smaller_options, _with_shorter_waits, _with_smaller_decisions):
                self._try_variants_repeatedly(make)
        return self.best

    def _violates_same_invariant(self, script: Script) -> bool:
        """Whether the script violates the same invariant; if so, it becomes the best one so far."""
        if not self._may_go_on():
            return False
        self.runs += 1
        outcome = self._run(script)
        if violated_invariant(outcome.violation) != self._rule:
            return False
        self.best = outcome  # with the script as it was carried out: what came after the violation is gone
        return True

    def _drop_actions(self) -> None:
        """Drop ever smaller groups of actions that the violation does not need."""
        parts = 2
        while (actions := list(self.best.script.actions)) and self._may_go_on():
            length = max(1, len(actions) // parts)
            for start in reversed(range(0, len(actions), length)):
                rest = actions[:start] + actions[start + length :]
                if self._violates_same_invariant(self.best.script._replace(actions=rest)):
                    actions = list(self.best.script.actions)
            if length == 1 and len(actions) == len(self.best.script.actions):
                return
            parts *= 2

    def _try_variants_once(self, make: Callable[[Script], Iterator[Script]]) -> None:
        """Try the variants of the best script in order, until one still violates the invariant."""
        any(map(self._violates_same_invariant, make(self.best.script)))

    def _try_variants_repeatedly(self, make: Callable[[Script], Iterator[Script]]) -> None:
        """Try the smaller variants of the best script; start over whenever one still violates the invariant."""
        refused: set[str] = set()
        helped = True
        while helped and self._may_go_on():
            helped = False
            for candidate in make(self.best.script):
                key = repr(candidate)
                if key not in refused and self._violates_same_invariant(candidate):
                    helped = True
                    break
                refused.add(key)


def _size(script: Script) -> tuple[object, ...]:
    """A sort key: the number of actions, then the text of the script."""
    return len(script.actions), repr(script)


# ---- what may be smaller


def _with_fewer_options(script: Script) -> Iterator[Script]:
    """Variants of the script with more options at their plain values."""
    options = script.options
    plain = type(options).plain(options.seed, options.nodes)
    yield script._replace(options=plain)
    yield script._replace(options=replace(plain, servers=options.servers))
    yield script._replace(options=replace(options, policy=Policy.FIFO, faults=(), verbs=(), **_PLAIN_PACE))
    yield script._replace(options=replace(options, faults=(), verbs=(), **_PLAIN_PACE))


def _smaller_options(script: Script) -> Iterator[Script]:
    """Variants of the script with one option made smaller or plain."""
    options = script.options
    plain = type(options).plain(options.seed, options.nodes)
    if options.nodes > 1:
        yield script._replace(options=replace(options, nodes=options.nodes - 1))
    for name in (f.name for f in fields(options)):
        if getattr(options, name) != getattr(plain, name):
            yield script._replace(options=replace(options, **{name: getattr(plain, name)}))
    if options.servers > 2:
        yield script._replace(options=replace(options, servers=options.servers - 1))


def _with_shorter_waits(script: Script) -> Iterator[Script]:
    """Variants of the script in which an action and those after it come earlier, or healing follows sooner."""
    actions = script.actions
    last_s = actions[-1].at_s if actions else FIRST_TOPICS_S
    for heal_at_s in (last_s + _SHORT_GAP_S, last_s + _LONG_GAP_S):
        if heal_at_s < script.heal_at_s:
            yield script._replace(heal_at_s=round(heal_at_s, 3))
    before_s = FIRST_TOPICS_S
    for index, action in enumerate(actions):
        for gap_s in (0.0, _SHORT_GAP_S, (action.at_s - before_s) / 2):
            by_s = action.at_s - before_s - gap_s
            if by_s > 0.1:
                moved = [h._replace(at_s=round(h.at_s - by_s, 3)) for h in actions[index:]]
                heal_at_s = round(script.heal_at_s - by_s, 3)
                yield script._replace(actions=[*actions[:index], *moved], heal_at_s=heal_at_s)
        before_s = action.at_s


def _with_smaller_decisions(script: Script) -> Iterator[Script]:
    """Variants of the script with one decision of one action made smaller."""
    for index, action in enumerate(script.actions):
        for name, value in action.facts.items():
            for smaller in _smaller_values(value):
                changed = action._replace(facts={**action.facts, name: smaller})
                yield script._replace(actions=[*script.actions[:index], changed, *script.actions[index + 1 :]])


def _smaller_values(value: Any) -> Iterator[Any]:
    """Smaller variants of a decision: rounded or halved numbers, dicts and lists with an item less."""
    if isinstance(value, float) and value:
        yield 0.0
        if value != round(value, 1):
            yield round(value, 1)
        if value >= 2:
            yield float(round(value / 2))
    elif isinstance(value, dict):
        yield from ({k: v for k, v in value.items() if k != left_out} for left_out in value if len(value) > 1)
    elif isinstance(value, list):
        yield from (value[:i] + value[i + 1 :] for i in range(len(value)) if len(value) > 1)
        for i, item in enumerate(value):
            if isinstance(item, list):
                yield from ([*value[:i], smaller, *value[i + 1 :]] for smaller in _smaller_values(item))


# ---- what is printed


def as_test(found: Outcome, seed: int) -> str:
    """Source code of a test that runs the script and fails while it violates the invariant."""
    script, rule = found.script, violated_invariant(found.violation).lower()
    name = "".join(c if c.isalnum() else "_" for c in rule).strip("_")
    options, home = _options(script.options), type(script.options).__module__
    actions = [
        f"        ScheduledAction({h.at_s}, {_quoted(h.what)}, {_quoted(dict(h.facts))})," for h in script.actions
    ]
    lines = [
        *(["from dataclasses import replace", ""] if "replace(" in options else []),
        f"from {_RUN_MODULES[home]} import run_script",
        f"from {home} import Options",
        *(["from klamm.sim.schedules import Policy"] if "Policy." in options else []),
        f"from klamm.sim.scripts.script import {'ScheduledAction, ' if actions else ''}Script",
        "",
        "",
        f"def test_{name}_of_seed_{seed}() -> None:",
        f"    # {found.violation}",
        *(["    actions = [", *actions, "    ]"] if actions else ["    actions = []"]),
        "",
        f"    outcome = run_script(Script({options}, actions, heal_at_s={script.heal_at_s}))",
        "",
        "    assert outcome.violation is None",
    ]
    return "\n".join(lines)


def as_regression(found: Outcome, seed: int, tier: str) -> str:
    """Return the entry of `tests/simulation/regressions.toml` that repeats this failing run."""
    rule, why, script = (
        _quoted(violated_invariant(found.violation)),
        _quoted(found.violation or ""),
        encode_script(found.script),
    )
    head = f"[[regression]]\ntier = {_quoted(tier)}\nseed = {seed}"
    return f"{head}\ninvariant = {rule}\nwhy = {why}\ntest = \"\"\nscript = '''\n{script}\n'''"


def _options(options: Any) -> str:
    """Source code of the options, naming only those that differ from a plain cluster."""
    made = f"Options.plain(seed={options.seed}, nodes={options.nodes})"
    options_text = ", ".join(f"{name}={_quoted(value)}" for name, value in options_beyond_plain(options).items())
    return f"replace({made}, {options_text})" if options_text else made


def _quoted(value: object) -> str:
    """The value as a literal of Python and TOML, with double quotes."""
    if isinstance(value, Policy):
        return f"Policy.{value.name}"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(k)}: {_quoted(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_quoted, value)) + "]"
    return repr(value)
