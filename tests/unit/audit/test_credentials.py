"""ZooKeeper credentials of the audit: those that are not valid are refused, and never repeated."""

import pytest

from klamm.audit.snapshot import CannotAudit, parse_auth


def test_credentials_are_a_scheme_and_what_follows_the_first_colon() -> None:
    assert parse_auth("digest:kafka:canary") == ("digest", b"kafka:canary")


@pytest.mark.parametrize("text", ["canary", ":canary", "canary:", ""])
def test_invalid_credentials_are_refused_without_repeating_them(text: str) -> None:
    with pytest.raises(CannotAudit, match="--auth is not SCHEME:CREDENTIALS") as caught:
        parse_auth(text)

    assert "canary" not in str(caught.value)
