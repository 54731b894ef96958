"""The log agrees with a simple model of its producers, whatever is appended, truncated and restarted."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.unit.log.support import Partition, batch

from klamm.log.errors import AppendRefused
from klamm.log.loader import CheckpointedState
from klamm.model.errors import ErrorCode


class ProducerMachine(RuleBasedStateMachine):
    """Random appends, truncations and restarts, compared with a model of the producer state."""

    @initialize()
    def begin(self) -> None:
        import tempfile

        from tests.unit.log.support import ManualClock

        from klamm.runtime.disk import RealDisk
        from klamm.runtime.network import RealNetwork
        from klamm.runtime.randomness import RealRandomness
        from klamm.runtime.world import World

        self.place = tempfile.TemporaryDirectory()
        world = World(ManualClock(), RealNetwork(), RealDisk(), RealRandomness())
        self.partition = Partition(world, f"{self.place.name}/orders-0")
        self.log = self.partition.open(segment_bytes=600)
        self.sent: list[tuple[int, int, int, int]] = []  # (pid, epoch, first sequence, count), in order; pid 0: none
        self.remembered = 5

    def teardown(self) -> None:
        self.log.mark_failed()
        self.place.cleanup()

    def of(self, pid: int) -> list[tuple[int, int, int, int]]:
        """The model's batches of a producer."""
        return [entry for entry in self.sent if entry[0] == pid]

    def append(self, pid: int, epoch: int, sequence: int, count: int) -> ErrorCode | bool:
        """The refusal, or whether it was a duplicate."""
        content = batch(*["v"] * count, producer=(pid, epoch, sequence))
        try:
            return self.log.append_as_leader(content, 0).is_duplicate
        except AppendRefused as refused:
            return refused.code

    @rule(pid=st.integers(1, 3), count=st.integers(1, 3))
    def next_in_order(self, pid: int, count: int) -> None:
        """A producer appends the batch that follows its last one."""
        last = self.of(pid)[-1:]
        epoch, sequence = (last[0][1], last[0][2] + last[0][3]) if last else (0, 0)
        assert self.append(pid, epoch, sequence, count) is False
        self.sent.append((pid, epoch, sequence, count))

    @rule(pid=st.integers(1, 3), count=st.integers(1, 3))
    def new_epoch(self, pid: int, count: int) -> None:
        last = self.of(pid)[-1:]
        epoch = last[0][1] + 1 if last else 0
        assert self.append(pid, epoch, 0, count) is False
        self.sent.append((pid, epoch, 0, count))

    @rule()
    def of_no_producer(self) -> None:
        self.log.append_as_leader(batch("v"), 0)
        self.sent.append((0, 0, 0, 1))

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(pid=st.integers(1, 3))
    def the_last_again(self, pid: int) -> None:
        """A producer repeats its last batch."""
        last = self.of(pid)[-1:]
        if last:
            assert self.append(*last[0]) is True

    @rule(pid=st.integers(1, 3), gap=st.integers(1, 4))
    def a_gap(self, pid: int, gap: int) -> None:
        last = self.of(pid)[-1:]
        if last:
            _, epoch, sequence, count = last[0]
            assert self.append(pid, epoch, sequence + count + gap, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(pid=st.integers(1, 3))
    def an_old_epoch(self, pid: int) -> None:
        last = self.of(pid)[-1:]
        if last and last[0][1] > 0:
            assert self.append(pid, last[0][1] - 1, 0, 1) is ErrorCode.INVALID_PRODUCER_EPOCH

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        """Truncate the log."""
        kept = int(len(self.sent) * share)
        self.log.truncate_to(sum(count for *_, count in self.sent[:kept]))
        del self.sent[kept:]

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.log = self.partition.open(CheckpointedState(True, self.log.end_offset), segment_bytes=600)

    @rule(flushed=st.booleans())
    def crash(self, flushed: bool) -> None:
        if flushed:
            self.log.flush_now()
        self.log = self.partition.open(CheckpointedState(False, self.log.recovery_point), segment_bytes=600)

    @rule()
    def nothing_is_lost(self) -> None:
        assert self.log.end_offset == sum(count for *_, count in self.sent)


TestProducerMachine = ProducerMachine.TestCase
TestProducerMachine.settings = settings(max_examples=40, stateful_step_count=25)
