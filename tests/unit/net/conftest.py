"""A handler and a table of connections, for tests of the server."""

import pytest
from tests.unit.net.desk import Desk

from klamm.net.connection_table import ConnectionLimits, ConnectionTable


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def table() -> ConnectionTable:
    return ConnectionTable(ConnectionLimits())
