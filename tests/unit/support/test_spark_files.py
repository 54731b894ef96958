"""A test file with Spark that is in no group would start a JVM of its own, for fifteen seconds of processor time."""

from pathlib import Path

from tests.support.spark_files import ONE_SPARK_SESSION

ROOT = Path(__file__).parents[3]


def test_each_test_file_that_takes_the_shared_spark_session_is_in_a_group() -> None:
    files = [path for folder in ("clients", "contracts") for path in (ROOT / "tests" / folder).rglob("test_*.py")]
    with_spark = {str(path.relative_to(ROOT)) for path in files if "spark: SparkSession" in path.read_text()}

    assert len(with_spark) > 5
    assert with_spark - ONE_SPARK_SESSION.keys() == set()
    assert [name for name in ONE_SPARK_SESSION if not (ROOT / name).exists()] == []
