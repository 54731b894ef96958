"""Which settings of spark-submit a session keeps, as PYSPARK_SUBMIT_ARGS has them."""

import pytest

from klamm.spark.sessions import _chosen_settings

SETTINGS = {
    "two words": ("--master yarn --conf spark.a=b=c -c spark.d=e pyspark-shell", {"spark.a": "b=c", "spark.d": "e"}),
    "one word": ("--master=yarn --conf=spark.a=b=c pyspark-shell", {"spark.a": "b=c"}),
    "quotes": ("--master yarn '--conf=spark.a=b c' pyspark-shell", {"spark.a": "b c"}),
}


@pytest.mark.parametrize(("given", "settings"), SETTINGS.values(), ids=SETTINGS)
def test_master_and_settings_are_those_of_spark_submits_arguments(
    monkeypatch: pytest.MonkeyPatch, given: str, settings: dict[str, str]
) -> None:
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given)

    assert _chosen_settings() == {"spark.master": "yarn", **settings}
