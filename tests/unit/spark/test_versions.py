"""What the driver sends to workers is read by the same version of klamm only."""

import pickle

import pytest

from klamm.spark import versions
from klamm.spark.options import read_options
from klamm.spark.schema import Columns
from klamm.spark.source import KlammReader
from klamm.spark.tasks import Job
from klamm.spark.versions import OtherVersion

JOB = Job(read_options({"kafka.bootstrap.servers": "a:1", "subscribe": "orders"}), Columns(("offset",), ("offset",)))


def test_a_worker_reads_what_the_driver_of_the_same_version_sent() -> None:
    assert pickle.loads(pickle.dumps(KlammReader(JOB)))._job == JOB


def test_a_worker_of_another_version_refuses_what_the_driver_sent_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = pickle.dumps(KlammReader(JOB))
    monkeypatch.setattr(versions, "__version__", "0.0.9")

    with pytest.raises(OtherVersion, match=r"driver runs klamm .*, this worker 0.0.9. Make the archive .* again"):
        pickle.loads(sent)
