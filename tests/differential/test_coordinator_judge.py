"""The recorded part of what `make judge-groups` compares, and the rules by which it compares."""

from pathlib import Path

import pytest
from tests.differential.coordinators import recordings
from tests.differential.coordinators.comparison import compare
from tests.differential.coordinators.generator import draw
from tests.differential.coordinators.grounds import KLAMM, ground
from tests.differential.coordinators.judge import QUIET_S, SLOWER_S, Stage
from tests.differential.coordinators.leadership import Leadership
from tests.differential.coordinators.names import Names, Place
from tests.differential.coordinators.script import from_json, to_json

from klamm.wire.messages import JoinGroupResponse, JoinGroupResponseMember

PLACE = Place(7, 10, {"g": "0g-3", "x": "0x-1"})
ID = "m1-{}6b1cf7e-8a1f-4b6c-9d7e-0123456789ab"


async def test_klamms_coordinators_answer_recorded_scripts_like_apache_kafkas(tmp_path: Path) -> None:
    recorded = {each.script.seed: each for each in recordings.read()}
    scripts = [each.script for each in recorded.values()]
    async with ground(KLAMM, tmp_path, 0, 2 * len(scripts)) as running:
        stage = Stage(running, QUIET_S, lambda text: None)
        played = await stage.play(scripts)
        differing = [s for s in scripts if compare(played[s.seed], recorded[s.seed].lines).difference]
        # on a loaded machine an answer may come a step too late
        again = await stage.play(differing, QUIET_S + SLOWER_S)

    found = {seed: compare(lines, recorded[seed].lines).difference for seed, lines in again.items()}
    assert {seed: text for seed, text in found.items() if text} == {}
    assert len(scripts) >= 20


def test_the_coordinator_comparison_reports_a_differing_response() -> None:
    script, lines = next(each for each in recordings.read() if any("error_code=NONE" in line for line in each.lines))
    number = next(n for n, line in enumerate(lines) if "error_code=NONE" in line)
    wrong = [*lines[:number], lines[number].replace("NONE", "UNKNOWN_MEMBER_ID", 1), *lines[number + 1 :]]

    assert compare(lines, lines).difference is None
    assert "UNKNOWN_MEMBER_ID" in str(compare(wrong, lines).difference)
    assert compare(lines[:-1], lines).difference is not None
    assert script.steps


def test_a_generated_coordinator_script_depends_only_on_its_seed_and_survives_json_encoding() -> None:
    script = draw(5)

    assert draw(5) == script != draw(6)
    assert [str(step) for step in from_json(to_json(script)).steps] == [str(step) for step in script.steps]


def test_generated_ids_in_coordinator_responses_are_replaced_by_names_equal_in_every_run() -> None:
    def described(first: str, second: str) -> str:
        members = [JoinGroupResponseMember(member_id, None, b"\1") for member_id in (first, second)]
        return Names(PLACE).describe(
            JoinGroupResponse(generation_id=3, leader=first, member_id=second, members=members)
        )

    assert described(ID.format("a"), ID.format("b")) == described(ID.format("c"), ID.format("d"))
    assert described(ID.format("a"), ID.format("a")) != described(ID.format("a"), ID.format("b"))
    names = Names(PLACE)
    assert [names.producer(i) for i in (-1, 4000, 7, 4000)] == ["-1", "P1", "P2", "P1"]
    assert (names.partition("data", 11), names.partition("__consumer_offsets", 7)) == (
        "data-1",
        "__consumer_offsets-slot",
    )
    assert (names.text("0g-3"), names.member("stranger")) == ("g", "'stranger'")


@pytest.mark.parametrize(
    ("leader", "generation", "members", "is_open"),
    [
        ("i1", ("i1", "m1", "m2"), ("i1", "m1", "m2"), False),
        ("m1", ("i1", "m1", "m2"), ("i1", "m1", "m2"), True),
        ("m1", ("i1", "m1", "m2"), (), True),  # every session expired in the same step
        ("m1", (), ("i1", "m1", "m2"), True),  # the leader's response was lost
        ("m1", ("i1", "m1"), ("i1", "m1"), False),
        (None, (), ("m1", "m2"), True),
        (None, (), ("m1",), False),
        (None, (), (), False),
    ],
)
def test_a_coordinator_script_ends_where_apache_kafka_takes_the_leader_from_a_hash_table(
    leader: str | None, generation: tuple[str, ...], members: tuple[str, ...], is_open: bool
) -> None:
    leadership = Leadership()
    leadership.on_join_response("i1", ["i1", "m1", "m2"])
    assert not leadership.is_open(["i1", "m1", "m2"])

    if leader is not None:
        for listed in ((), generation, ()):  # only the response to the leader has the members
            leadership.on_join_response(leader, listed)

    assert leadership.is_open(members) == is_open


EMPTY = "    7> {{transactional_id=x transaction_state=Empty transaction_timeout_ms=5 transaction_start_time_ms={}}}"
REFUSED = ("1: p1 txn_commit v=0", "    1> {topics=[{partitions=[{error_code=INVALID_PRODUCER_ID_MAPPING}]}]}")
GROUP = "    2> {{groups=[{{error_code=NONE group_id=g group_state={} protocol_type= members=[]}}]}}"


@pytest.mark.parametrize(
    ("before", "ours", "theirs", "is_known"),
    [
        ((), EMPTY.format("-1"), EMPTY.format("T"), True),
        ((), EMPTY.format("T"), EMPTY.format("-1"), False),
        (REFUSED, GROUP.format("Dead"), GROUP.format("Empty"), True),
        (REFUSED, GROUP.format("Dead"), GROUP.format("Stable"), False),
        (REFUSED[:1], GROUP.format("Dead"), GROUP.format("Empty"), False),
        (REFUSED, "    = Dead", "    = Empty", True),
        (REFUSED, "    = Empty", "    = Dead", False),
        (("9: op restart how='stop'",), "    4> {error_code=NOT_COORDINATOR}", "    4> closed", True),
        (("9: op restart how='stop'",), "    4> {error_code=NONE}", "    4> closed", False),
        (("9: op restart how='kill'",), "    4> {error_code=NOT_COORDINATOR}", "    4> closed", False),
    ],
)
def test_the_coordinator_comparison_accepts_only_listed_differences_from_apache_kafka(
    before: tuple[str, ...], ours: str, theirs: str, is_known: bool
) -> None:
    found = compare([*before, ours], [*before, theirs])

    assert (found.difference is None) is is_known
    assert sum(found.known.values()) == is_known


OLD_FETCH = "7: op fetch v=1 partitions=[['data', 1]] at='other'"
NOTHING = " 7> {throttle_time_ms=0 topics=[] error_code=NONE groups=[]}"


@pytest.mark.parametrize(
    ("step", "error", "is_known"),
    [(OLD_FETCH, "NOT_COORDINATOR", True), (OLD_FETCH, "NONE", False),
     (OLD_FETCH.replace("v=1", "v=2"), "NOT_COORDINATOR", False)],
)  # fmt: skip
def test_only_the_error_of_an_offset_fetch_1_explains_an_answer_without_partitions(
    step: str, error: str, is_known: bool
) -> None:
    partition = f"{{partition_index=data-1 committed_offset=-1 metadata= error_code={error}}}"
    ours = NOTHING.replace("topics=[]", f"topics=[{{name=data partitions=[{partition}]}}]")

    assert (compare([step, ours], [step, NOTHING]).difference is None) == is_known


def test_the_coordinator_comparison_ends_where_only_klamm_lets_a_static_member_restart_in_a_full_group() -> None:
    refused = "    2> {error_code=GROUP_MAX_SIZE_REACHED members=[]}"
    kafka = ["1: m1 enter v=9", "    = Stable i1#1 m1#1 m2#1 m3#1", "2: s1b enter v=9", refused, "    = Stable i1#1"]
    klamm = [*kafka[:3], "    waits", "    = PreparingRebalance i1#2"]

    compared = compare(klamm, kafka)
    of_a_new_member = compare(
        [line.replace("s1b", "s2") for line in klamm], [line.replace("s1b", "s2") for line in kafka]
    )

    assert (compared.difference, compared.known.total()) == (None, 1)
    assert of_a_new_member.difference == f"2: s2 enter v=9\n    klamm: waits\n    Kafka: {refused.strip()}"
