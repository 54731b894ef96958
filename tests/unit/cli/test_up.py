"""`klamm up` with numbers that cannot be: it starts nothing, and names the option."""

from pathlib import Path

import pytest

from klamm.cli.up import up
from klamm.embedded.cluster import CannotStart, ClusterOptions

WRONG = {
    "--nodes 0 ": {"node_count": 0},
    f"--nodes {10**22} ": {"node_count": 10**22},
    "--port 99999 ": {"first_port": 99_999},
    "--port 65534 ": {"first_port": 65_534},
    "--port -1 ": {"first_port": -1},
    "--zookeeper-port 70000 ": {"zookeeper_port": 70_000},
}


@pytest.mark.parametrize(("option", "given"), WRONG.items(), ids=WRONG)
def test_klamm_up_refuses_numbers_that_cannot_be_before_it_starts_anything(
    tmp_path: Path, option: str, given: dict[str, int]
) -> None:
    options = ClusterOptions(str(tmp_path / "data"), **{"node_count": 3, **given})  # type: ignore[arg-type]

    with pytest.raises(CannotStart, match=f"^{option}is not valid"):
        up(options)

    assert list(tmp_path.iterdir()) == []
