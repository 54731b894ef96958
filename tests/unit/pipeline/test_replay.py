"""What a replay of dead letters reads: all letters of their topic, whatever says where the pipeline's topics begin."""

from klamm.client.offsets import EARLIEST
from klamm.pipeline.replay import replay_options
from klamm.pipeline.spec import parse_spec
from klamm.runtime.disk import RealDisk
from klamm.spark.option_set import Reads
from klamm.spark.options import read_options

FILE = """pipeline: orders
source:
  bootstrap: 127.0.0.1:9092
  topics: orders
  value: {format: string}
  options:
    startingOffsetsByTimestamp: '{"orders": {"0": 1700000000000}}'
    logDirs: /data
    kafka.isolation.level: read_uncommitted
    maxOffsetsPerTrigger: 10
sink: {delta: table, bootstrap: 'other:9092'}
dead_letter: {topic: letters}
"""


def test_a_replay_reads_all_dead_letters_from_the_brokers_that_have_them() -> None:
    spec = parse_spec(RealDisk(), "/x/orders.yaml", FILE)

    options = read_options(replay_options(spec), Reads.STREAM)

    assert (options.subscription.topics, options.bootstrap) == (("letters",), (("other", 9092),))
    assert (options.start.everywhere, options.start.by_time) == (EARLIEST, False)
    assert (options.log_dirs, options.read_committed) == ((), True)
    assert (options.values.format, options.trigger.max_offsets) == ("string", 10)
