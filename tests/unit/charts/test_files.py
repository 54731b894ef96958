"""Charts as files: each kind is drawn, several in one file, and errors say what to do."""

import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex

from klamm.charts.files import CannotDraw, check_drawable, write_charts
from klamm.charts.image import draw_charts
from klamm.charts.model import Bars, Level, Levels, Span, Timeline
from klamm.model.errors import UsageError

BEGIN = 1_700_000_000_000
BARS = Bars("flights", ["UA", "$AA$"], {"all": [10, 5], "late": [2, 1]}, "flights")
TIMELINE = Timeline(
    "who led",
    BEGIN,
    BEGIN + 100_000_000,
    {"a-0": [Span(BEGIN, BEGIN + 50_000_000, "broker 1"), Span(BEGIN + 50_000_000, BEGIN + 50_000_001, "no leader")]},
    {"a-0": "1 change"},
    "no leader",
)
LEVELS = Levels(
    "imbalance", BEGIN, BEGIN + 10, {"broker 1": [Level(BEGIN, BEGIN + 2, 1), Level(BEGIN + 5, BEGIN + 9, 2)]}, "%"
)


def test_a_png_has_all_charts_one_below_the_other(tmp_path: Path) -> None:
    def size_of(*charts: Bars | Timeline | Levels) -> tuple[int, int]:
        path = tmp_path / "chart.png"
        write_charts(str(path), charts)
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", content[16:24])
        return width, height

    alone = [size_of(chart) for chart in (BARS, TIMELINE, LEVELS)]
    width, height = size_of(BARS, TIMELINE, LEVELS)
    assert width == 1320
    assert height == pytest.approx(sum(height for _, height in alone), abs=3)


@pytest.mark.parametrize(("suffix", "begin"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_suffix_of_the_file_name_chooses_the_image_format(tmp_path: Path, suffix: str, begin: bytes) -> None:
    path = tmp_path / f"chart.{suffix}"
    write_charts(str(path), [TIMELINE])
    assert path.read_bytes().startswith(begin)


def test_bars_carry_their_values_and_names() -> None:
    axes: Any = draw_charts([BARS]).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [10, 5, 2, 1]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["UA", r"\$AA\$"]
    assert axes.yaxis_inverted()


def test_a_short_span_of_the_marked_state_is_wide_enough_to_see_in_an_image() -> None:
    figure = draw_charts([TIMELINE])
    drawn: dict[str, Any] = {str(c.get_label()): c for c in figure.axes[0].collections}
    begin, end = figure.axes[0].get_xlim()
    marked = drawn["no leader"].get_paths()[0].get_extents()
    assert marked.width / (end - begin) == pytest.approx(0.002, rel=0.01)
    assert to_hex(drawn["no leader"].get_facecolor()[0]) == "#d62728"
    assert drawn["broker 1"].get_paths()[0].get_extents().width / (end - begin) == pytest.approx(0.5)
    assert figure.axes[0].get_yticklabels()[0].get_text() == "a-0  1 change"


def test_level_charts_have_gaps_where_no_value_is_known() -> None:
    values: Any = draw_charts([LEVELS]).axes[0].lines[0].get_ydata()
    assert [str(value) for value in values] == ["1.0", "1.0", "nan", "2.0", "2.0"]


def test_an_image_file_name_without_a_known_suffix_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--plot chart.gif: the name must end with .png, .svg or .pdf."):
        check_drawable("chart.gif")


def test_without_matplotlib_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CannotDraw, match=r"matplotlib is not installed. Run: pip install 'klamm\[plot\]'"):
        check_drawable("chart.png")


def test_the_error_for_a_chart_file_that_cannot_be_written_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(CannotDraw, match=r"Cannot write .*chart.png: No such file or directory. Name another file."):
        write_charts(str(tmp_path / "absent" / "chart.png"), [BARS])


def test_a_very_long_name_leaves_room_for_the_chart() -> None:
    spans = [Span(BEGIN, BEGIN + 1_000, "broker 1")]
    name = f"{'n' * 240}-0"
    chart = Timeline("who led", BEGIN, BEGIN + 1_000, {name: spans}, {name: "1 change"})

    figure = draw_charts([chart])
    figure.canvas.draw()

    assert figure.axes[0].get_yticklabels()[0].get_window_extent().x0 >= 0  # not beside the picture
    assert figure.axes[0].get_yticklabels()[0].get_text().endswith("n-0  1 change")
