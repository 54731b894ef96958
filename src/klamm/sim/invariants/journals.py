"""The journal of a controller: it has all that the controller did, by the end of the event, and nothing else."""

from collections.abc import Sequence
from typing import Any, Final

from klamm.model.ids import TopicPartition
from klamm.model.leader_and_isr import LeaderAndIsr
from klamm.sim.history.history import History
from klamm.sim.history.journals import Line
from klamm.sim.history.trace import EventBegan, JournalWritten, RequestSent
from klamm.sim.nodes.control_messages import partition_states, stop_states
from klamm.wire.api import ApiKey
from klamm.wire.messages import UpdateMetadataRequest

_ELECTIONS: Final = ("offline", "unclean", "preferred", "reassignment", "override", "controlled shutdown")
_OVERRIDE: Final = "override"
"""It chooses among the replicas of an assignment that may never be written."""
_WITHOUT_A_STATE_BEFORE: Final = ("initial", "found")
_OF_EACH_LINE: Final = frozenset({"ts_ms", "node", "controller_epoch", "seq", "cause", "kind"})
_STEPS_OF_REQUESTED_DELETIONS: Final = frozenset({"begins", "waits", "held back", "completed"})
"""The others are of replicas whose topic is gone, or that a reassignment removed."""


def what_happened_is_journalled(history: History, event: EventBegan) -> str | None:
    """When the next event begins, the journal has each election, state, step, response and event before it."""
    missing = history.journals.missing.get((event.broker, event.incarnation))
    return f"the journal of broker {event.broker} lacks {next(iter(missing.values()))}" if missing else None


def requests_are_journalled(history: History, event: RequestSent) -> str | None:
    """Before a control request is sent, the journal has its receiver, kind, version, epoch and partitions."""
    run = event.sender, event.incarnation
    if event.again or run not in history.journals.read:
        return None
    line, api = history.journals.requests.get((run, event.target)), ApiKey(event.message.API_KEY).name
    if line is None or line["api"] != api:
        return f"broker {event.target} is sent {api}, the journal has {line}"
    sent = {p for p, _, _ in partition_states(event.message)} or {stop.partition for stop in stop_states(event.message)}
    listed = {TopicPartition(topic, n) for topic, numbers in line["partitions"].items() for n in numbers}
    # old versions of StopReplica take two requests: replicas to stop, and to delete
    is_whole = api == ApiKey.STOP_REPLICA.name or all(_may_be_gone(history, event, p) for p in listed - sent)
    if line["count"] < len(listed) or not sent <= listed or not is_whole:
        return f"broker {event.target} is sent {api} of {sorted(sent)}, the journal has {line}"
    if line["controller_epoch"] != event.message.controller_epoch or line["version"] != event.version:
        return f"broker {event.target} is sent {api} {event.version}, the journal has {line}"
    if ("broker_list" in line) is not isinstance(event.message, UpdateMetadataRequest):
        return f"broker {event.target} is sent {api}, the journal has {line}"
    return None


def _may_be_gone(history: History, event: RequestSent, p: TopicPartition) -> bool:
    """Whether the partition may be gone since the request was queued, another one of its name or none being there."""
    topic = history.topics.znodes.get(p.topic)
    if topic is None or p.partition not in topic.partitions or p.topic in history.topics.deletion_requests:
        return True
    return topic.czxid > history.controllers.elected_at.get(event.message.controller_epoch, 0)


def journal_lines_are_true(history: History, event: JournalWritten) -> str | None:
    """The lines of a journal are numbered, name the term and an event before them, and decisions are in ZooKeeper."""
    last = history.journals.last_line.get((event.broker, event.incarnation), 0)
    for number, line in enumerate(event.lines, start=last + 1):
        if line["seq"] != number or line["node"] != event.broker:
            return f"line {number} of broker {event.broker} is {line}"
        epoch = line["controller_epoch"]
        if epoch and (term := history.controllers.terms.get(epoch)) is not None and term.broker != event.broker:
            return f"broker {event.broker} writes {line} in the term of broker {term.broker}"
        if line["kind"] == "decision" and "leader_epoch" in line and (wrong := _untrue(history, line)) is not None:
            return f"broker {event.broker} writes {line}, {wrong}"
    return None


def decisions_tell_what_they_were_made_from(history: History, event: JournalWritten) -> str | None:
    """A journal's decision names a state before it, whether it is unclean, and why each replica before was rejected."""
    for line in event.lines:
        if line["kind"] != "decision" or line.get("decision") in _WITHOUT_A_STATE_BEFORE:
            continue
        p, version = TopicPartition(line["topic"], line["partition"]), line["partition_epoch"]
        states = next((s for s in history.states.incarnations_of(p) if _is_version(line, s, version)), None)
        if not version or states is None:
            continue  # another rule judges that
        told = line["leader_from"], line["isr_from"]
        if told != (None, None) and told not in [(s.leader, list(s.isr)) for s in states[:version]]:
            return f"broker {event.broker} writes {line}, and no state before it is so"
        is_election = line["decision"] in _ELECTIONS and line["leader_to"] != line["leader_from"]
        if is_election and (wrong := _untrue_reasons(history, line, states[version - 1])):
            return f"broker {event.broker} writes {line}: {wrong}"
    return None


def _is_version(line: Line, states: Sequence[LeaderAndIsr], version: int) -> bool:
    """Whether these states of a partition have the one that the line says was written, as this version."""
    told = line["leader_to"], line["leader_epoch"], line["isr"]
    return version < len(states) and told == _facts(states[version])


def _untrue_reasons(history: History, line: Line, before: LeaderAndIsr) -> str | None:
    """What is wrong in what an election says of its candidates; None where it is right."""
    chosen, p = line["leader_to"], TopicPartition(line["topic"], line["partition"])
    if line.get("unclean", False) is not (chosen not in before.isr):
        return f"the ISR before was {before.isr}"
    term, rejected = history.controllers.terms.get(line["controller_epoch"]), dict(line["rejected"])
    orders = {assignment.replicas for assignment in history.assignments.written.get(p, ())}
    possible = [order[: order.index(chosen)] for order in orders if chosen in order]
    if line["decision"] != _OVERRIDE and tuple(rejected) not in possible:
        return f"the assignments were {sorted(orders)}"
    for broker, why in rejected.items():
        if why == "not in the ISR" and broker in before.isr:
            return f"the ISR before was {before.isr}"
        if why == "not live" and history.broker_views.is_online(term, p, broker) is True:
            return f"broker {broker} is live, and its log directory works"
    return None


def journals_name_what_was_found(history: History, event: JournalWritten) -> str | None:
    """A journal's line about what was found is not empty, and a deletion has steps only after its request was found."""
    found: dict[int, set[str]] = {}
    for line in event.lines:
        epoch = line["controller_epoch"]
        if line["kind"] == "found":
            facts = {key: value for key, value in line.items() if key not in _OF_EACH_LINE}
            if not any(value or value == 0 for value in facts.values()):
                return f"broker {event.broker} found nothing, and writes {line}"
            found.setdefault(epoch, set()).update(facts.get("to_be_deleted", ()))
        elif line["kind"] == "deletion" and line["step"] in _STEPS_OF_REQUESTED_DELETIONS:
            known = history.journals.to_be_deleted[epoch] | found.get(epoch, set())
            if unfound := [topic for topic in line["partitions"] if topic not in known]:
                return f"broker {event.broker} did not write that {unfound} is to be deleted, and writes {line}"
    return None


def _untrue(history: History, line: Line) -> str | None:
    """Why this line about a leader is wrong; None where ZooKeeper has what it says."""
    p, version = TopicPartition(line["topic"], line["partition"]), line["partition_epoch"]
    lives = [states for states in history.states.incarnations_of(p) if version < len(states)]
    if not lives:
        return f"version {version} does not exist"
    told = line["leader_to"], line["leader_epoch"], line["isr"]
    if not any(told == _facts(states[version]) for states in lives):
        return f"version {version} is {lives[0][version]}"
    if line["chosen"] != (line["leader_to"] if line["leader_to"] >= 0 else None):
        return "which names another as chosen"
    if line["decision"] == "initial" and (line["leader_from"] is not None or version):
        return "which was not the first state"
    return None


def _facts(state: Any) -> tuple[int, int, list[int]]:
    """What a line says of a state."""
    return state.leader, state.leader_epoch, list(state.isr)
