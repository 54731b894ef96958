"""What a node advertises in ApiVersions beside what Apache Kafka 3.9.1 in ZooKeeper mode does, on real nodes."""

import asyncio
from pathlib import Path

import pytest
from tests.support import apache_kafka
from tests.support.cluster import Cluster

from klamm.client.connection import Connection
from klamm.embedded.nodes import Command, klamm_node
from klamm.runtime.world import real_world
from klamm.wire.api import ApiKey
from klamm.wire.messages import ApiVersionsRequest, ApiVersionsResponse

Table = dict[int, tuple[int, int]]

NOT_OFFERED = {
    "SaslHandshake", "SaslAuthenticate", "DescribeAcls", "CreateAcls", "DeleteAcls", "CreateDelegationToken",
    "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken", "DescribeClientQuotas",
    "AlterClientQuotas", "DescribeUserScramCredentials", "AlterUserScramCredentials",
}  # fmt: skip
"""Security and client quotas."""


async def _advertised(address: str) -> Table:
    host, _, port = address.rpartition(":")
    connection = await Connection.open(real_world(), host, int(port), "test", 10)
    try:
        request = ApiVersionsRequest("test", "1")
        response: ApiVersionsResponse = await connection.request(ApiKey.API_VERSIONS, 3, request, 10)
        return {a.api_key: (a.min_version, a.max_version) for a in response.api_keys}
    finally:
        connection.close()


def advertised_by(directory: Path, command: Command) -> Table:
    """The versions that a node of this kind advertises, by API key."""
    with Cluster(directory, 1, command=command) as cluster:
        return asyncio.run(_advertised(cluster.node(1).address))


@pytest.mark.skipif(apache_kafka.why_missing() is not None, reason=str(apache_kafka.why_missing()))
def test_klamm_advertises_the_api_versions_of_apache_kafka_except_for_the_apis_not_offered(tmp_path: Path) -> None:
    theirs = advertised_by(tmp_path / "apache", apache_kafka.broker())
    ours = advertised_by(tmp_path / "klamm", klamm_node)

    assert ours == {api_key: versions for api_key, versions in theirs.items() if _name(api_key) not in NOT_OFFERED}


def _name(api_key: int) -> str:
    return "".join(part.capitalize() for part in ApiKey(api_key).name.split("_"))
