"""The metrics page of a node has every metric of the table."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.unit.broker.node_parts import build

from klamm.broker.dispatch import Dispatcher
from klamm.broker.metrics import NodeMetrics
from klamm.broker.routes import routes
from klamm.telemetry.metric_table import TABLE


async def test_a_nodes_metrics_page_contains_every_unlabelled_metric_of_the_metric_table(tmp_path: Path) -> None:
    parts, _ = build(tmp_path)

    page, _ = await NodeMetrics(parts, Dispatcher(routes(parts))).render_page("")

    shown = {family.name for family in text_string_to_metric_families(page.decode())}
    assert {name for name, row in TABLE.items() if not row.labels} - shown == set()
