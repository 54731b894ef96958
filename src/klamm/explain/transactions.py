"""Explain a transaction: what its coordinators decided, where it stands, and what it waits for."""

from typing import Final

from klamm.coordinator.decision_journal import TRANSACTION
from klamm.explain.answer import NOTHING_PENDING, Answer
from klamm.explain.live import TransactionNow
from klamm.explain.sources import ExplainInputs
from klamm.explain.timeline import utc_time
from klamm.telemetry.journal_reader import Entry

MAX_STEPS: Final = 20
_ONGOING: Final = "Ongoing"
_PREPARED: Final = ("PrepareCommit", "PrepareAbort")
_NOT_SHOWN: Final = ("transactional_id", "step", "partitions")


def explain_transaction(inputs: ExplainInputs, name: str, most: int | None = MAX_STEPS) -> Answer:
    """Explain a transactional id from the journal of its coordinators and from what its coordinator says now."""
    story = sorted(
        (e for e in inputs.entries if e.kind == TRANSACTION and e.facts.get("transactional_id") == name),
        key=lambda e: (e.ts_ms, e.seq),
    )
    now = inputs.live if isinstance(inputs.live, TransactionNow) else None
    unknown = inputs.live_problem
    if not story and now is None:
        absent = [f"There is no transactional id {name} in {inputs.where}."]
        return Answer(absent if unknown is None else [*absent, unknown], False)
    problem = [] if unknown is None else [f"its present state is not known: {unknown}"]
    shown = story if most is None else story[-most:]
    lines = [f"({len(story) - len(shown):,} earlier steps: --all shows them)"] if len(shown) < len(story) else []
    lines += [_step_line(e) for e in shown]
    if now is not None:
        lines += [_headline(name, now), *_pending(now, story)]
    return Answer([*lines, *problem], True)


def _step_line(entry: Entry) -> str:
    """Return one decision of a coordinator as a line of text: time, step, reason and facts."""
    facts = {k: v for k, v in entry.facts.items() if k not in _NOT_SHOWN and v is not None}
    why = facts.pop("why", None)
    listed = entry.facts.get("partitions")
    names = [f"{topic}-{n}" for topic, numbers in listed.items() for n in numbers] if isinstance(listed, dict) else []
    where = f" {', '.join(names)}" if names else ""
    rest = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in facts.items())
    reason = f": {why}" if why else ""
    return f"{utc_time(entry.ts_ms)}  coordinator {entry.node}: {entry.facts.get('step')}{where}{reason} ({rest})"


def _headline(name: str, now: TransactionNow) -> str:
    """Return the first line about a transactional id: state, producer id, epoch and timeout."""
    begun = "" if now.start_ms is None else f", begun {utc_time(now.start_ms)}"
    return (
        f"transaction {name} now: {now.state}, producer id {now.producer_id}, epoch {now.epoch}, timeout "
        f"{now.timeout_ms} ms{begun}"
    )


def _pending(now: TransactionNow, story: list[Entry]) -> list[str]:
    """Return lines that say what happens next with the transaction, and what it waits for."""
    where = ", ".join(map(str, now.partitions)) or "no partition"
    if now.state == _ONGOING and now.start_ms is not None:
        left_s = (now.start_ms + now.timeout_ms - now.now_ms) / 1000
        if left_s >= 0:
            return [f"next: its producer ends it, or the coordinator aborts it in {left_s:.1f} s; in {where}"]
        return [
            f"next: it is open for {-left_s:.1f} s longer than its timeout; the coordinator aborts it within "
            f"transaction.abort.timed.out.transaction.cleanup.interval.ms; in {where}"
        ]
    if now.state in _PREPARED:
        refused = [e for e in story if e.facts.get("step") == "marker refused"]
        why = f"; {refused[-1].facts['partition']} refused it with {refused[-1].facts['why']}" if refused else ""
        return [f"next: markers are written into {where}{why}; until then read_committed consumers wait there"]
    return [NOTHING_PENDING]
