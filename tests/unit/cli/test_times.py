"""Times and durations of command lines."""

import pytest

from klamm.cli.times import parse_duration, parse_past, parse_time
from klamm.model.errors import UsageError

DURATIONS = {
    "P7D": 604_800_000, "PT1H30M": 5_400_000, "P1DT1S": 86_401_000, "PT0.5S": 500, "PT0S": 0,
    "7d": 604_800_000, "1h30m": 5_400_000, "90s": 90_000, "0.5s": 500,
}  # fmt: skip


@pytest.mark.parametrize(("text", "ms"), DURATIONS.items(), ids=DURATIONS)
def test_a_duration_option_with_a_unit_is_parsed_to_milliseconds(text: str, ms: int) -> None:
    assert parse_duration("--since", text) == ms


@pytest.mark.parametrize("text", ["", "P", "7D", "PT", "P1Y", "-P1D", "10", "m", "1m1h"])
def test_a_malformed_duration_option_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--by-duration .* is not a duration"):
        parse_duration("--by-duration", text)


def test_a_time_option_is_utc_unless_a_time_zone_offset_is_given() -> None:
    assert parse_time("--from", "1970-01-01T00:00:01.010") == parse_time("--from", "1010") == 1_010
    assert parse_time("--from", "1970-01-01T00:01Z") == 60_000
    assert parse_time("--from", "1970-01-01T02:00:00+02:00") == 0


@pytest.mark.parametrize("text", ["yesterday", "", "1" * 20, "2026-13-01"])
def test_a_malformed_time_option_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--to-datetime .* is not a time"):
        parse_time("--to-datetime", text)


@pytest.mark.parametrize("text", ["1960-01-01T00:00Z", "1969-12-31T23:59:59.999Z", "0001-01-01T00:00Z"])
def test_a_time_before_1970_counts_as_1970_because_negative_times_mean_ends_of_the_log(text: str) -> None:
    assert parse_time("--to", text) == 0
    assert parse_past("--since", text, 5) == 0
    assert parse_past("--since", "1d", 5) == 0
