"""Guards taken out of production code: the simulation must see each missing. What it cannot see, it does not prove."""

import pytest

from klamm.sim.cluster import run_schedule
from klamm.zk import fenced
from klamm.zk.operations import Check


def test_a_zombie_whose_writes_are_not_bound_to_its_epoch_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fenced, "Check", lambda path, version: Check(path, -1))

    found = next((v for v in (run_schedule(seed).violation for seed in range(1, 120)) if v is not None), "")

    assert found.startswith("fenced_writes")
