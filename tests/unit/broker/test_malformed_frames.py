"""Malformed request frames: each is answered or ends its connection; `make prove` sends ten million."""

import pytest
from tests.frame_fuzzer.run import corpus, fuzz, smallest

from klamm.broker.handlers import control
from klamm.wire.messages import MetadataRequest


def test_malformed_frames_are_answered_or_end_their_connection() -> None:
    fuzzing = fuzz(1_000, 1, float("inf"), report=lambda text: None)

    assert fuzzing.problems == {}
    assert fuzzing.sent == 1_000 + len(corpus())
    assert min(fuzzing.outcomes["response"], fuzzing.outcomes["closed"]) > 100


def test_the_frame_fuzzer_reports_unexpected_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "unknown_protocols", lambda message: [])

    fuzzing = fuzz(0, 1, float("inf"), report=lambda text: None)

    assert len(fuzzing.problems) == 2 < len(corpus())


def test_the_frame_fuzzer_keeps_the_one_harmful_frame_of_those_sent_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "unknown_protocols", lambda message: [])
    (harmless,), *_, harmful = corpus()

    assert smallest(1, [harmless, *harmful]) == harmful


def test_the_frame_fuzzer_reports_a_held_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = MetadataRequest.decode
    holds = iter([range(10_000_000)])

    def slow(*arguments: object) -> MetadataRequest:
        sum(next(holds, range(0)))
        return decode(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(MetadataRequest, "decode", slow)

    fuzzing = fuzz(100, 1, float("inf"), report=lambda text: None, first=())

    assert [problem for problem in fuzzing.problems if problem.startswith("the loop is held")]
