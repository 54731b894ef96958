"""What `klamm explain group` makes of a journal and of the coordinator's answer."""

from typing import Any

from tests.support.controller_room import ListSink
from tests.unit.explain.scene import Clock

from klamm.explain.groups import explain_group, owners_since
from klamm.explain.live import GroupNow, LagNow, MemberNow, TransactionNow
from klamm.explain.sources import ExplainInputs
from klamm.explain.transactions import explain_transaction
from klamm.model.ids import TopicPartition
from klamm.telemetry.journal import Journal
from klamm.telemetry.journal_reader import only_about, parse_lines

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
WHO = {"client": "app", "host": "/h"}


class Story:
    """Lines of a coordinator, a second apart."""

    def __init__(self) -> None:
        self.sink = ListSink()
        self.journal = Journal(self.sink, 3, Clock())
        self.cause = ""

    def begin(self, what: str, why: str, member: str = "m1") -> None:
        facts = {"what": what, "why": why, "member": member, **WHO}
        self.cause = self.journal.begin("group", group="g", step="rebalance", generation=1, **facts)

    def step(self, step: str, **facts: Any) -> None:
        self.journal.line(self.cause, "group", group="g", step=step, **facts)

    def assigned(self, generation: int, **owned: list[int]) -> None:
        owners = [{"member": m, **WHO, "partitions": {"orders": numbers}} for m, numbers in owned.items()]
        self.step("assigned", generation=generation, owners=owners, omitted=0)

    def explain(self, live: GroupNow | None = None, problem: str | None = None) -> list[str]:
        self.journal.flush()
        wanted = only_about(("group",), "g")
        inputs = ExplainInputs(list(parse_lines(self.sink.content, wanted)), "here", None)
        return explain_group(inputs._replace(live=live, live_problem=problem), "g").lines


def now(state: str = "Stable", *, lags: dict[TopicPartition, LagNow] | None = None,
        earlier: dict[TopicPartition, LagNow] | None = None) -> GroupNow:  # fmt: skip
    members = (MemberNow("m1", None, "app", "/h", (P0,)), MemberNow("m2", "static", "app", "/h", (P1,)))
    return GroupNow(state, "range", members, lags or {}, earlier or {}, 6.0)


def two_generations() -> Story:
    story = Story()
    story.begin("member joined", "member joined: m1; client reason: not provided")
    story.assigned(1, m1=[0, 1])
    story.begin("member joined", "member joined: m2; client reason: rebalance enforced", "m2")
    story.step("waiting", missing=[{"member": "m1", **WHO}])
    story.step("removed", member="m9", why="it did not join within 60000 ms")
    story.assigned(2, m1=[0], m2=[1])
    return story


def test_explain_group_prints_members_rebalances_and_their_causes() -> None:
    assert two_generations().explain(now()) == [
        "group g now: Stable, 2 members, assignor range, assigned in generation 2 at 2023-11-14 22:13:25.000",
        "member m1 (client app, host /h): 1 partitions, lag 0",
        "    since 2023-11-14 22:13:21.000: orders-0",
        "member m2 (client app, host /h, instance static): 1 partitions, lag 0",
        "    since 2023-11-14 22:13:25.000: orders-1",
        "the last 2 rebalances, of 2 in the journal:",
        "    2023-11-14 22:13:20.000  member joined: m1 (client app, host /h); generation 1 of 1 members after 1.0 s",
        "    2023-11-14 22:13:22.000  member joined: m2; client reason: rebalance enforced (client app, host /h); "
        "generation 2 of 2 members after 3.0 s",
        "        removed m9: it did not join within 60000 ms",
        "        at 2023-11-14 22:13:23.000 it waited for m1 (client app, host /h)",
        "lag: the group has no committed offsets and no partitions",
    ]


def test_the_journal_lines_of_a_group_are_found_whatever_its_name() -> None:
    sink = ListSink()
    journal = Journal(sink, 3, Clock())
    names = ['a "group"', "CORP\\app", "gr\u00fc\u00dfe", "tab\t"]
    for name in names:
        journal.begin("group", group=name, step="rebalance")
    journal.flush()

    found = [e.facts["group"] for name in names for e in parse_lines(sink.content, only_about(("group",), name))]

    assert found == names


def test_explain_group_counts_no_lag_where_the_committed_offset_is_after_the_end_of_a_truncated_log() -> None:
    lags = {P0: LagNow(1000, 10), P1: LagNow(60, 100)}

    lines = two_generations().explain(now(lags=lags, earlier=lags))

    assert "member m1 (client app, host /h): 1 partitions, lag 0" in lines
    assert "lag: 40 records in 2 partitions, 6 s ago 40: it does not change" in lines
    assert [line.partition(" at ")[0] for line in lines if line.startswith("stuck")] == ["stuck: orders-1"]


def test_explain_group_prints_only_the_last_five_rebalances() -> None:
    story = Story()
    for number in range(7):
        story.begin("session timeout", f"no heartbeat came from m{number}")
        story.step("empty", generation=number)
    lines = story.explain()
    assert "the last 5 rebalances, of 7 in the journal:" in lines
    assert next(line for line in lines if "no heartbeat" in line).endswith(
        "session timeout: no heartbeat came from m2 (client app, host /h); the group is empty"
    )


def test_explain_group_prints_lag_its_trend_and_partitions_without_progress() -> None:
    before = {P0: LagNow(10, 100), P1: LagNow(50, 100)}
    lines = two_generations().explain(now(lags={P0: LagNow(10, 130), P1: LagNow(80, 100)}, earlier=before))
    assert "lag: 140 records in 2 partitions, 6 s ago 140: it does not change" in lines
    assert lines[-1] == (
        "stuck: orders-0 at offset 10, lag 120: member m1 (client app, host /h) has it, and nothing was committed for "
        "6 s"
    )
    faster = {P0: LagNow(70, 100), P1: LagNow(100, 100)}
    assert two_generations().explain(now(lags=faster, earlier=before))[-1] == (
        "lag: 30 records in 2 partitions, 6 s ago 140: it falls by 18 records/s, gone in about 2 s"
    )
    slower = {P0: LagNow(11, 161), P1: LagNow(51, 101)}
    assert "6 s ago 140: it grows by 10 records/s" in two_generations().explain(now(lags=slower, earlier=before))[-1]


def test_explain_group_names_the_members_for_which_a_rebalance_waits() -> None:
    story = two_generations()
    story.begin("member left", "member m2 left", "m2")
    story.step("waiting", missing=[{"member": "m1", **WHO}])
    assert story.explain(now("PreparingRebalance"))[-1] == (
        "stuck: since 2023-11-14 22:13:27.000 the rebalance waits for m1 (client app, host /h): they send heartbeats "
        "and do not join. Their rebalance timeout (max.poll.interval.ms) removes them."
    )
    assert not any(line.startswith("stuck") for line in story.explain(now("Stable")))


def test_explain_group_tells_silent_members_from_those_that_do_not_join() -> None:
    story = two_generations()
    story.begin("member left", "member m2 left", "m2")
    missing = [{"member": "m1", **WHO, "silent_ms": 1_000}, {"member": "m3", **WHO, "silent_ms": 999}]
    story.step("waiting", missing=missing)
    silent, alive = story.explain(now("PreparingRebalance"))[-2:]
    assert silent.endswith(
        "m1 (client app, host /h): no heartbeat came since it began. The session timeout removes them."
    )
    assert "waits for m3 (client app, host /h): they send heartbeats and do not join" in alive


def test_explain_group_says_that_a_rebalance_waits_for_member_ids_that_nobody_used() -> None:
    story = two_generations()
    story.begin("member left", "member m2 left", "m2")
    story.step("waiting", missing=[])
    assert story.explain(now("PreparingRebalance"))[-1].endswith(
        "waits for member ids that were given out and not used. Their session timeout removes them."
    )


def test_explain_group_prints_the_partitions_of_a_rebalancing_group_from_the_journal() -> None:
    story = two_generations()
    story.begin("member left", "member m2 left", "m2")
    coordinator = now("PreparingRebalance", lags={P0: LagNow(10, 130)}, earlier={P0: LagNow(10, 130)})
    members = tuple(m._replace(partitions=()) for m in coordinator.members)
    lines = story.explain(coordinator._replace(members=members))
    assert "member m1 (client app, host /h): 1 partitions before this rebalance, lag 120" in lines
    assert "    since 2023-11-14 22:13:21.000: orders-0" in lines
    assert "member m1 (client app, host /h) has it, and nothing was committed for 6 s" in lines[-1]


def test_explain_group_keeps_the_assignment_time_of_a_restarted_static_member() -> None:
    story = two_generations()
    story.step("static member replaced", old_member="m2", member="m3", instance="static")
    story.assigned(2, m1=[0], m3=[1])
    story.journal.flush()
    since = owners_since(parse_lines(story.sink.content))
    assert since == {("m1", P0): 1_700_000_001_000, ("m3", P1): 1_700_000_005_000}
    assert story.explain(now())[-1].endswith("static member static came back as m3, without a rebalance")


def test_explain_group_prints_what_is_known_without_the_coordinator_or_the_journal() -> None:
    assert (
        two_generations()
        .explain(problem="nobody answers")[0]
        .endswith("its present state is not known: nobody answers")
    )
    assert Story().explain(now())[0] == "group g now: Stable, 2 members, assignor range"
    assert Story().explain(now("Dead")) == [
        "There is no group g in here or in the cluster. `klamm groups list` shows the groups."
    ]
    assert Story().explain(problem="no answer")[-1] == "no answer"


# ---- transactions


def explain(live: TransactionNow | None, most: int | None = 20) -> list[str]:
    sink = ListSink()
    journal = Journal(sink, 2, Clock())
    facts = {"transactional_id": "t", "producer_id": 7, "epoch": 1}
    journal.line("", "transaction", step="begun", partitions={"orders": [0, 1]}, count=2, **facts)
    why = "timed out: open for 61000 ms"
    journal.line("", "transaction", step="abort decided", partitions={"orders": [0]}, why=why, **facts)
    journal.line("", "transaction", step="marker refused", partition="orders-0", why="NOT_LEADER", **facts)
    journal.line("", "transaction", step="begun", partitions={}, **{**facts, "transactional_id": "other"})
    journal.flush()
    inputs = ExplainInputs(list(parse_lines(sink.content)), "here", None, live=live)
    return explain_transaction(inputs, "t", most).lines


def test_explain_transaction_prints_its_steps_and_the_reason_for_waiting() -> None:
    live = TransactionNow("PrepareAbort", 7, 2, 60_000, 1_700_000_000_000, (P0,), 1_700_000_070_000)
    assert explain(live) == [
        "2023-11-14 22:13:20.000  coordinator 2: begun orders-0, orders-1 (count 2, producer id 7, epoch 1)",
        "2023-11-14 22:13:21.000  coordinator 2: abort decided orders-0: timed out: open for 61000 ms "
        "(producer id 7, epoch 1)",
        "2023-11-14 22:13:22.000  coordinator 2: marker refused: NOT_LEADER "
        "(partition orders-0, producer id 7, epoch 1)",
        "transaction t now: PrepareAbort, producer id 7, epoch 2, timeout 60000 ms, begun 2023-11-14 22:13:20.000",
        "next: markers are written into orders-0; orders-0 refused it with NOT_LEADER; until then read_committed "
        "consumers wait there",
    ]
    assert explain(live, 1)[0] == "(2 earlier steps: --all shows them)"


def test_explain_transaction_prints_the_next_step_of_open_and_finished_transactions() -> None:
    live = TransactionNow("Ongoing", 7, 2, 60_000, 1_700_000_000_000, (P0,), 1_700_000_050_000)
    assert explain(live)[-1] == "next: its producer ends it, or the coordinator aborts it in 10.0 s; in orders-0"
    late = explain(live._replace(now_ms=1_700_000_070_000))[-1]
    assert late.startswith("next: it is open for 10.0 s longer than its timeout; the coordinator aborts it within")
    assert explain(live._replace(state="CompleteCommit"))[-1] == "next: nothing is pending, and nothing is wrong"


def test_explain_transaction_reports_an_unknown_transactional_id() -> None:
    answer = explain_transaction(ExplainInputs([], "here", None, live_problem="no answer"), "t")
    assert not answer.is_known
    assert answer.lines == ["There is no transactional id t in here.", "no answer"]
