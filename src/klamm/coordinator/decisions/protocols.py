"""Which protocol a generation uses. Source: GroupMetadata.selectProtocol (3.9)."""

from collections import Counter
from collections.abc import Sequence

Protocols = tuple[tuple[str, bytes], ...]


def select_protocol(members: Sequence[Protocols]) -> str:
    """Choose the protocol with most votes: each member votes for its first one that all members support.

    Of several with as many votes, the one whose first vote came from the earliest member. Raises ValueError where the
    members have no protocol in common; the checks at joining prevent that.
    """
    candidates = set.intersection(*({name for name, _ in protocols} for protocols in members))
    votes = Counter(next(name for name, _ in protocols if name in candidates) for protocols in members if candidates)
    if not votes:
        raise ValueError("the members have no protocol in common")
    return max(votes, key=votes.__getitem__)
