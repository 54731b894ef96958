"""What an export reads: all records, whatever the pipeline's start and limits are."""

import pytest

from klamm.client.offsets import EARLIEST, LATEST
from klamm.pipeline.export import export_options
from klamm.pipeline.spec import parse_spec
from klamm.runtime.disk import RealDisk

FILE = """pipeline: orders
source:
  bootstrap: 127.0.0.1:9092
  topics: orders
  start: latest
  value: {{format: {format}}}
  options: {{maxOffsetsPerTrigger: 10, kafka.client.id: export, minPartitions: 3, startingTimestamp: 1700000000000}}
sink: {{delta: table}}
"""


@pytest.mark.parametrize("value_format", ["raw", "string"])
def test_an_export_reads_from_the_first_record_to_the_last_and_keeps_records_that_cannot_be_decoded(
    value_format: str,
) -> None:
    spec = parse_spec(RealDisk(), "/x/orders.yaml", FILE.format(format=value_format))

    options = export_options(spec)

    assert (options.start.everywhere, options.end.everywhere) == (EARLIEST, LATEST)
    assert (options.trigger.max_offsets, options.trigger.max_bytes) == (None, None)
    assert (options.client_id, options.min_partitions, options.read_committed) == ("export", 3, True)
    assert options.values.on_error.reports == (value_format != "raw")
