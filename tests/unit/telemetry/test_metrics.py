"""Numbers and their names."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from klamm.telemetry.exposition import render
from klamm.telemetry.meters import Reading, Timer
from klamm.telemetry.metric_table import COUNTER, SUMMARY, TABLE


def test_metric_names_equal_those_of_prometheus_jmx_exporter_for_kafka() -> None:
    for row in TABLE.values():
        assert re.fullmatch(r"(kafka|klamm)_[a-z_]+", row.name)
        assert row.sentence.endswith(".")
        if row.source:
            kind = re.match(r"kafka\.([\w.]+):type=([\w-]+),(name|attribute)=", row.source)
            assert kind is not None
            assert row.name.startswith(re.sub(r"[.-]", "_", f"kafka_{kind[1]}_{kind[2].lower()}_"))
            is_a_state = "_since_" in row.name or "_lag_" in row.name
            assert (row.kind == SUMMARY) == (row.name.endswith("ms") and not is_a_state)
        assert row.kind != COUNTER or not row.name.endswith("total")


def test_a_timer_metric_has_quantiles_of_the_latest_values_and_a_total_count() -> None:
    timer = Timer()
    assert dict(timer.quantiles())[0.5] == 0.0
    for ms in range(3_000):
        timer.observe(float(ms))

    quantiles = dict(timer.quantiles())
    assert (timer.count, timer.total_ms) == (3_000, 2_999 * 1_500)
    assert quantiles[0.5] == 1_976 + 512
    assert quantiles[0.999] == 2_998

    timer.forget()

    assert (dict(timer.quantiles())[0.99], timer.count) == (0.0, 3_000)


def readings() -> list[Reading]:
    timer = Timer()
    timer.observe(5.0)
    return [
        Reading("kafka_controller_kafkacontroller_activecontrollercount", 1),
        Reading("kafka_controller_controllerstats_uncleanleaderelections", 3),
        Reading("kafka_controller_controllerchannelmanager_queuesize", 2, ("1",)),
        Reading("kafka_controller_controllerchannelmanager_queuesize", 4, ("2",)),
        Reading("kafka_controller_controllerstats_leaderelectionrateandtimems", timer),
    ]


@pytest.mark.parametrize("accept", ["", "text/plain", "application/openmetrics-text; version=1.0.0"])
def test_rendered_metrics_are_valid_prometheus_and_openmetrics_text(accept: str) -> None:
    body, content_type = render(readings(), accept)

    text = body.decode()
    assert content_type.startswith("application/openmetrics-text" if "openmetrics" in accept else "text/plain")
    assert "kafka_controller_controllerstats_uncleanleaderelections_total 3" in text
    assert 'kafka_controller_controllerchannelmanager_queuesize{broker_id="2"} 4' in text
    assert 'kafka_controller_controllerstats_leaderelectionrateandtimems{quantile="0.99"} 5.0' in text
    assert "kafka_controller_controllerstats_leaderelectionrateandtimems_count 1" in text
    if "openmetrics" not in accept:
        families = {f.name: f for f in text_string_to_metric_families(text)}
        assert families["kafka_controller_kafkacontroller_activecontrollercount"].samples[0].value == 1


def test_rendering_a_metric_that_is_not_in_the_metric_table_raises_an_error() -> None:
    with pytest.raises(KeyError):
        render([Reading("kafka_nobody_knows", 1)], "")
