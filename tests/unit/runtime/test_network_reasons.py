"""Reasons of the system, in errors that people read."""

import socket

from klamm.runtime.network import reason_of


def test_a_host_name_that_cannot_be_resolved_is_named_as_the_reason() -> None:
    error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    assert reason_of(error) == "name or service not known"
    assert reason_of(OSError(98, "[Errno 98] error while attempting to bind")) == "address already in use"
