"""Charts as text: what each character says, and that no line is longer than the terminal."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.charts.model import Bars, Chart, Level, Levels, Span, Timeline, duration_text, number_text, states_of
from klamm.charts.text import chart_lines

HOUR = 3_600_000
BEGIN = 1_700_000_000_000


def texts(chart: Chart, width: int = 60, *, ascii_only: bool = False) -> list[str]:
    return [line.text for line in chart_lines(chart, width, ascii_only=ascii_only)]


def timeline(rows: Mapping[str, Sequence[Span]], marked: str | None = None) -> Timeline:
    return Timeline("who led", BEGIN, BEGIN + 10 * HOUR, rows, marked=marked)


def span(begin_h: float, end_h: float, state: str) -> Span:
    return Span(BEGIN + round(begin_h * HOUR), BEGIN + round(end_h * HOUR), state)


def test_bars_are_as_long_as_their_values() -> None:
    lines = texts(Bars("flights", ["UA", "Hawaiian"], {"all": [1000, 500.5]}, "flights"), 50)

    assert lines[0] == "flights"
    assert [line[:13] for line in lines[1:]] == ["UA       ████", "Hawaiian ████"]
    assert [line.rpartition("█")[2].lstrip("▏▎▍▌▋▊▉") for line in lines[1:]] == [" 1,000 flights", " 500 flights"]
    assert abs(lines[1].count("█") - 2 * lines[2].count("█")) <= 1


def test_bars_of_several_series_name_them_and_share_one_scale() -> None:
    lines = texts(Bars("churn", ["broker 1"], {"left": [40], "entered": [10]}), 60, ascii_only=True)

    assert [line[:21] for line in lines[1:]] == ["broker 1 left    ####", "         entered ####"]
    assert lines[1].count("#") == pytest.approx(4 * lines[2].count("#"), abs=2)


def test_the_smallest_value_above_zero_is_seen_and_zero_is_not() -> None:
    chart = Bars("b", ["a", "b", "c"], {"n": [1_000_000, 1, 0]})

    assert [line.count("#") > 0 for line in texts(chart, ascii_only=True)[1:]] == [True, True, False]
    assert "▏" in texts(chart)[2]


def test_a_timeline_shows_who_led_when_and_says_what_the_symbols_mean() -> None:
    rows = {"a-0": [span(0, 5, "broker 1"), span(5, 10, "broker 2")], "a-1": [span(5, 10, "broker 12")]}
    lines = texts(timeline(rows), 44, ascii_only=True)

    assert lines[1] == "a-0 " + "1" * 20 + "2" * 19 or lines[1] == "a-0 " + "1" * 19 + "2" * 20
    assert set(lines[2].split()[1]) == {".", "a"}
    assert lines[-1] == "1 broker 1  2 broker 2  a broker 12"
    assert "2023-11-14 22:13" in lines[3]


def test_a_timeline_shows_the_marked_state_however_short_it_lasts() -> None:
    rows = {
        "a-0": [span(0, 5, "broker 1"), Span(BEGIN + 5 * HOUR, BEGIN + 5 * HOUR + 1, "none"), span(5, 10, "broker 2")]
    }

    assert texts(timeline(rows, "none"))[1].count("█") == 1
    assert "█" not in texts(timeline(rows))[1]


def test_a_timeline_cell_shows_the_state_that_lasts_longest_in_it() -> None:
    rows = {"a-0": [span(0, 0.1, "broker 1"), span(0.1, 0.2, "broker 2"), span(0.2, 10, "broker 1")]}

    assert set(texts(timeline(rows), 40)[1].split()[1]) == {"1"}


def test_levels_show_the_highest_value_of_each_cell_and_gaps() -> None:
    levels = [
        Level(BEGIN, BEGIN + 2 * HOUR, 0),
        Level(BEGIN + 2 * HOUR, BEGIN + 3 * HOUR, 80),
        Level(BEGIN + 5 * HOUR, BEGIN + 10 * HOUR, 40),
    ]
    lines = texts(Levels("imbalance", BEGIN, BEGIN + 10 * HOUR, {"broker 1": levels}, "%"), 60)

    drawn = lines[1].removeprefix("broker 1 ").removesuffix(" max 80 %")
    assert [sorted(set(part)) for part in (drawn[:8], drawn[9:12], drawn[14:20], drawn[24:])] == [
        ["▁"],
        ["█"],
        [" "],
        ["▅"],
    ]


def test_a_level_chart_cell_shows_the_highest_of_several_values() -> None:
    levels = [Level(BEGIN, BEGIN + 1, 90), Level(BEGIN + 1, BEGIN + 2, 10), Level(BEGIN + 2, BEGIN + 10 * HOUR, 10)]
    lines = texts(Levels("imbalance", BEGIN, BEGIN + 10 * HOUR, {"broker 1": levels}), 60)

    assert lines[1].removeprefix("broker 1 ")[:2] == "█▂"


def test_styles_end_where_a_long_title_is_cut() -> None:
    line = chart_lines(Bars("x" * 80, ["a"], {"n": [1]}), 40)[0]

    assert (len(line.text), line.styles) == (40, ((0, 40, "bold"),))


def test_a_chart_without_data_prints_that_there_is_none() -> None:
    for chart in (Bars("b", [], {"n": []}), timeline({}), Levels("l", BEGIN, BEGIN, {})):
        assert texts(chart)[1] == "(nothing to draw)"


def test_ascii_charts_have_no_other_characters() -> None:
    chart = timeline({"größe-0": [span(0, 1, "broker 1")]}, "broker 1")

    assert all(line.isascii() for line in texts(chart, ascii_only=True))


def test_styles_colour_the_marked_state_red() -> None:
    line = chart_lines(timeline({"a-0": [span(0, 5, "none"), span(5, 10, "broker 1")]}, "none"), 60)[1]

    assert {(line.text[begin:end].strip("█1"), style) for begin, end, style in line.styles} >= {("", "bold red")}
    assert [line.text[begin] for begin, _, style in line.styles if style == "bold red"] == ["█"]


def test_chart_texts_of_numbers_and_durations_are_short() -> None:
    assert [number_text(n, "ms") for n in (0, 12345, 0.25, 99999.5)] == ["0 ms", "12,345 ms", "0.25 ms", "100,000 ms"]
    durations = [50, 12_500, 600_000, 7_200_000, 12_000_000, 200_000_000]
    assert [duration_text(ms) for ms in durations] == ["50 ms", "12.5 s", "10 min", "2 h", "3 h 20 min", "2 d 7 h"]
    assert states_of(timeline({"a": [span(0, 1, s) for s in ("broker 10", "broker 9", "none")]}, "none")) == [
        "none", "broker 9", "broker 10",
    ]  # fmt: skip


SPANS = st.lists(
    st.builds(
        lambda begin, length, state: Span(BEGIN + begin, BEGIN + begin + length, f"broker {state}"),
        st.integers(-HOUR, 11 * HOUR), st.integers(0, 3 * HOUR), st.integers(0, 80),
    ),
    max_size=20,
)  # fmt: skip


@given(
    rows=st.dictionaries(st.text(max_size=80), SPANS, max_size=5), width=st.integers(40, 200), ascii_only=st.booleans()
)
def test_no_line_of_a_text_chart_is_longer_than_the_given_width(
    rows: dict[str, list[Span]], width: int, ascii_only: bool
) -> None:
    levels = {name: [Level(s.begin_ms, s.end_ms, 7) for s in spans] for name, spans in rows.items()}
    counts = {"n": [float(len(spans)) for spans in rows.values()]}
    charts = (timeline(rows, "broker 3"), Levels("l", BEGIN, BEGIN + HOUR, levels), Bars("b", list(rows), counts))
    for chart in charts:
        for line in chart_lines(chart, width, ascii_only=ascii_only):
            assert len(line.text) <= width
            assert all(0 <= begin <= end <= len(line.text) for begin, end, _ in line.styles)


@given(SPANS)
def test_a_text_timeline_shows_every_span_of_the_marked_state(spans: list[Span]) -> None:
    seen = any(s.state == "broker 3" and s.end_ms >= BEGIN and s.begin_ms <= BEGIN + 10 * HOUR for s in spans)

    assert ("█" in texts(timeline({"a-0": spans}, "broker 3"))[1]) == seen


def test_names_that_are_too_long_keep_their_ends_in_which_partitions_differ() -> None:
    rows = {f"payments.settlement.confirmed-events.v1-{n}": [span(0, 10, "broker 1")] for n in (0, 11)}
    lines = texts(timeline(rows), 60, ascii_only=True)

    assert [line.split()[0] for line in lines[1:3]] == ["payments.sett~s.v1-0", "payments.sett~.v1-11"]
