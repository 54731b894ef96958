"""The metrics page for Prometheus; prometheus-client formats it."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from klamm.telemetry.meters import Reading, Timer
from klamm.telemetry.metric_table import COUNTER, SUMMARY, TABLE


class _Readings:
    """A collector of prometheus-client over these readings."""

    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        """Yield the readings as Prometheus metric families."""
        families: dict[str, Metric] = {}
        for reading in self._readings:
            row = TABLE[reading.name]
            family = families.get(row.name)
            if family is None:
                family = families[row.name] = Metric(row.name, row.sentence, row.kind)
            _add_sample(family, row.kind, dict(zip(row.labels, reading.labels, strict=True)), reading.value)
        return iter(families.values())


def render(readings: Iterable[Reading], accept: str) -> tuple[bytes, str]:
    """The page and its content type. Readings must be in `TABLE`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Readings(list(readings)))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _add_sample(family: Metric, kind: str, labels: dict[str, str], value: float | Timer) -> None:
    """Add the value to the family; a timer becomes its quantiles, count and sum."""
    if isinstance(value, Timer):
        assert kind == SUMMARY, f"{family.name} is no summary"
        for quantile, ms in value.quantiles():
            family.add_sample(family.name, {**labels, "quantile": str(quantile)}, ms)
        family.add_sample(f"{family.name}_count", labels, value.count)
        family.add_sample(f"{family.name}_sum", labels, value.total_ms)
    else:
        family.add_sample(f"{family.name}_total" if kind == COUNTER else family.name, labels, value)
