"""`klamm replicas verify` on log directories: planted damage is found at its offset, and nothing else is."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple, cast

import pytest
from tests.unit.log.compaction import COMPACTED
from tests.unit.spark.stored_logs import ORDERS, clean, copy_of_a_compacted_log, fill, log_manager, make_log, new_log
from typer.testing import CliRunner

from klamm.audit.replicas.key_comparison import KeyedLog, LastRecord, compare_keys
from klamm.audit.replicas.partitions import stored_partitions
from klamm.audit.replicas.replica_log import ReplicaLog
from klamm.audit.replicas.verification import Verified, verify_partition
from klamm.cli.app import app
from klamm.log.checkpoints import HIGH_WATERMARKS, offsets_text, parse_offsets
from klamm.log.log import Log
from klamm.model.errors import UsageError
from klamm.runtime.disk import RealDisk
from klamm.wire.records import BatchHeader
from klamm.wire.records import batches as batches_of

NAMES = ("one", "two", "three")


def verified(directory: Path, *names: str) -> Verified:
    dirs = [str(directory / name) for name in names or NAMES]
    (found,) = stored_partitions(RealDisk(), dirs, ["orders"])
    return verify_partition(found.partition, found.replicas)


async def three_replicas(directory: Path, seed: int) -> Log:
    """Three equal replicas of one generated log."""
    log = await make_log(directory / NAMES[0], seed)
    for name in NAMES[1:]:
        shutil.copytree(directory / NAMES[0], directory / name)
    return log


class Damage(NamedTuple):
    content: bytes | None
    """Of the segment afterwards; None where the file is gone."""
    offset: int


Plant = Callable[[Random, bytes, list[BatchHeader], bool], Damage]


def flip(rng: Random, content: bytes, found: list[BatchHeader], is_first: bool) -> Damage:
    at = rng.randrange(len(content))
    changed = bytearray(content)
    changed[at] ^= 1 << rng.randrange(8)
    return Damage(bytes(changed), _at(found, at).base_offset)


def cut(rng: Random, content: bytes, found: list[BatchHeader], is_first: bool) -> Damage:
    at = rng.choice([rng.randrange(len(content)), rng.choice(found).position])
    return Damage(content[:at], _at(found, at).base_offset)


def gap(rng: Random, content: bytes, found: list[BatchHeader], is_first: bool) -> Damage:
    if not is_first and rng.random() < 0.2:
        return Damage(None, found[0].base_offset)
    batch = rng.choice(found)
    return Damage(content[: batch.position] + content[batch.position + batch.size :], batch.base_offset)


def _at(found: list[BatchHeader], position: int) -> BatchHeader:
    return next(b for b in found if b.position <= position < b.position + b.size)


async def test_planted_flips_cuts_and_gaps_are_found_at_their_offsets(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    await three_replicas(tmp_path, seed=3)
    assert not verified(tmp_path).divergences
    for case in range(request.config.getoption("--planted-damage")):
        rng = Random(case)
        replica = rng.choice(NAMES)
        segments = sorted(path for path in (tmp_path / replica / "orders-0").glob("*.log") if path.stat().st_size)
        path = rng.choice(segments)
        content = path.read_bytes()
        plant: Plant = rng.choice([flip, cut, gap])
        planted = plant(rng, content, list(batches_of(content)), path == segments[0])
        path.unlink() if planted.content is None else path.write_bytes(planted.content)

        found = verified(tmp_path).divergences

        assert [(d.offset, d.replicas) for d in found] == [(planted.offset, (str(tmp_path / replica / "orders-0"),))], (
            f"case {case}: {plant.__name__} in {path}"
        )
        path.write_bytes(content)
    assert not verified(tmp_path).divergences


async def test_two_damaged_replicas_are_both_reported(tmp_path: Path) -> None:
    await three_replicas(tmp_path, seed=3)
    expected = []
    for name, number in (("one", 1), ("three", 4)):
        path = sorted((tmp_path / name / "orders-0").glob("*.log"))[number]
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        expected.append((list(batches_of(bytes(content)))[-1].base_offset, (str(tmp_path / name / "orders-0"),)))

    assert [(d.offset, d.replicas) for d in verified(tmp_path).divergences] == expected


async def test_replicas_with_other_records_below_the_common_high_watermark_differ(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        await make_log(tmp_path / name, seed)

    (of_two,) = verified(tmp_path, "one", "three").divergences
    (of_three,) = verified(tmp_path).divergences

    assert len(of_two.replicas) == 2
    assert "No majority says which one is right" in of_two.remedy
    assert of_three.replicas == (str(tmp_path / "three" / "orders-0"),)
    assert "stop the broker, move the directory of orders-0 away" in of_three.remedy


async def test_records_above_the_common_high_watermark_are_not_compared(tmp_path: Path) -> None:
    log = await three_replicas(tmp_path, seed=3)
    end = log.end_offset // 2
    path = sorted((tmp_path / "two" / "orders-0").glob("*.log"))[-2]
    path.write_bytes(path.read_bytes()[:-9])
    (tmp_path / "one" / HIGH_WATERMARKS).write_bytes(offsets_text({ORDERS: end}))

    found = verified(tmp_path)

    assert (found.end, found.divergences) == (end, ())


class TestCompactedLogs:
    async def compacted(self, directory: Path) -> None:
        """Three replicas of a log: two of them compacted."""
        for name in ("two", "three"):
            async with log_manager(directory / name) as logs:
                fill(new_log(logs, configs=COMPACTED))
                assert name == "three" or await clean(logs)
        shutil.copytree(directory / "two", directory / "one")

    async def test_replicas_that_are_compacted_differently_are_equal(self, tmp_path: Path) -> None:
        await self.compacted(tmp_path)
        sizes = {sum(p.stat().st_size for p in (tmp_path / n / "orders-0").glob("*.log")) for n in NAMES}

        found = verified(tmp_path)

        assert len(sizes) == 2
        assert found.divergences == ()
        assert found.unavailable == ()

    async def test_a_follower_that_copied_a_compacted_log_equals_its_leader(self, tmp_path: Path) -> None:
        await copy_of_a_compacted_log(tmp_path / "one", tmp_path / "two")

        found = verified(tmp_path, "one", "two")

        assert (found.divergences, found.unavailable) == ((), ())

    async def test_a_checkpoint_older_than_the_last_compaction_is_no_reason_for_a_difference(
        self, tmp_path: Path
    ) -> None:
        """Compaction goes up to the high watermark, which is checkpointed every five seconds."""
        await self.compacted(tmp_path)
        newest = parse_offsets((tmp_path / "two" / HIGH_WATERMARKS).read_bytes(), HIGH_WATERMARKS)[ORDERS]
        for end in range(newest, 0, -7):
            for name in NAMES:
                (tmp_path / name / HIGH_WATERMARKS).write_bytes(offsets_text({ORDERS: end}))

            found = verified(tmp_path)

            assert found.divergences == (), end

    async def test_a_difference_while_compaction_is_at_work_for_the_first_time_is_not_reported(
        self, tmp_path: Path
    ) -> None:
        await self.compacted(tmp_path)
        for name in NAMES:
            (tmp_path / name / "cleaner-offset-checkpoint").unlink(missing_ok=True)
            (tmp_path / name / "orders-0" / "00000000000000000030.log.deleted").touch()

        found = verified(tmp_path)

        assert found.divergences == ()
        assert "orders-0 are being replaced: verify it again in a minute" in found.unavailable[0]

    async def test_a_key_whose_last_record_is_lost_is_reported_with_its_offset(self, tmp_path: Path) -> None:
        await self.compacted(tmp_path)
        lost = 0
        path = max((tmp_path / "one" / "orders-0").glob("*.log"), key=lambda p: p.stat().st_size)
        content = path.read_bytes()
        for batch in batches_of(content):
            if batch.is_control or not batch.record_count:
                continue
            path.write_bytes(content[: batch.position] + content[batch.position + batch.size :])
            found = verified(tmp_path).divergences
            if found:
                lost += 1
                assert batch.base_offset <= found[0].offset <= batch.last_offset
                assert found[0].replicas == (str(tmp_path / "one" / "orders-0"),)
        path.write_bytes(content)
        assert lost > 3

    async def test_a_flipped_bit_is_reported_as_damage(self, tmp_path: Path) -> None:
        await self.compacted(tmp_path)
        path = max((tmp_path / "one" / "orders-0").glob("*.log"), key=lambda p: p.stat().st_size)
        content = bytearray(path.read_bytes())
        batch = list(batches_of(bytes(content)))[2]
        content[batch.position + 70] ^= 1
        path.write_bytes(content)

        (found,) = verified(tmp_path).divergences

        assert (found.offset, found.replicas) == (batch.base_offset, (str(tmp_path / "one" / "orders-0"),))
        assert "checksum" in found.problem


class NamedReplica:
    """A replica of which only the name is asked."""

    def __init__(self, name: str) -> None:
        self.name = name


KEY = b"key"
OLD, NEW, TOMBSTONE = LastRecord(3, 1), LastRecord(5, 2), LastRecord(5, None)


@pytest.mark.parametrize(
    ("mine", "others", "is_superseded", "lacks"),
    [
        (NEW, NEW, False, False),
        (OLD, NEW, False, True),
        (None, NEW, False, True),
        (None, NEW, True, False),
        (OLD, NEW, True, False),
        (None, TOMBSTONE, False, False),
        (OLD, TOMBSTONE, False, True),
        (LastRecord(5, 1), NEW, False, True),
    ],
)
def test_a_last_record_may_be_missing_only_where_compaction_may_remove_it(
    mine: LastRecord | None, others: LastRecord, is_superseded: bool, lacks: bool
) -> None:
    one, two = cast("ReplicaLog", NamedReplica("one")), cast("ReplicaLog", NamedReplica("two"))
    logs = [
        KeyedLog(one, {} if mine is None else {KEY: mine}, {KEY} if is_superseded else set()),
        KeyedLog(two, {KEY: others}, set()),
    ]

    found = compare_keys(logs)

    assert (found is not None and (found.offset, one in found.lacking) == (5, True)) == lacks


class TestCommand:
    async def test_the_exit_status_is_0_for_equal_replicas_and_1_for_different_ones(self, tmp_path: Path) -> None:
        await three_replicas(tmp_path, seed=3)
        arguments = ["replicas", "verify", "--log-dirs", ",".join(str(tmp_path / name) for name in NAMES)]

        equal = CliRunner().invoke(app, arguments)
        path = sorted((tmp_path / "two" / "orders-0").glob("*.log"))[1]
        path.write_bytes(path.read_bytes()[:-1])
        different = CliRunner().invoke(app, arguments)

        assert equal.exit_code == 0
        assert "1 partitions" in equal.output
        assert "all replicas that were read are equal" in equal.output
        assert different.exit_code == 1
        text = " ".join(different.output.split())
        assert "two/orders-0:" in text
        assert "is cut off" in text

    async def test_an_unknown_topic_is_refused(self, tmp_path: Path) -> None:
        await make_log(tmp_path)

        with pytest.raises(UsageError, match="--topic order: no log directory has this topic"):
            list(stored_partitions(RealDisk(), [str(tmp_path)], ["order"]))

    async def test_a_replica_without_a_high_watermark_is_reported_as_not_compared(self, tmp_path: Path) -> None:
        await three_replicas(tmp_path, seed=3)
        (tmp_path / "two" / HIGH_WATERMARKS).write_bytes(b"")

        found = verified(tmp_path)

        assert found.divergences == ()
        assert [line.partition(": ")[0] for line in found.unavailable] == [str(tmp_path / "two" / "orders-0")]
