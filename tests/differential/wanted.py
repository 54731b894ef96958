"""Differences that are on purpose. Each stands in `docs/differences.md` with its reason, too."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.differential.said import BROKERS

if TYPE_CHECKING:
    from tests.differential.judge import Difference


@dataclass(frozen=True)
class Wanted:
    script: str
    did: str
    place: str
    instead: Callable[[Any], Any]
    """What we do there, from what Kafka does."""

    def explains(self, script: str, difference: "Difference") -> bool:
        here = (script, difference.did, difference.place) == (self.script, self.did, self.place)
        return here and difference.klamm == self.instead(difference.kafka)


def _not_done(_: Any) -> None:
    """Nothing."""


def _leader_2_not_named(told: list[str]) -> list[str]:
    return [text.replace(", by", ", leader not named, by") if "LeaderAndIsr 2 " in text else text for text in told]


def _with_features(told: Any) -> Any:
    """A registration of version 5 for one of version 4."""
    if isinstance(told, list):
        return [_with_features(text) for text in told]
    return told.replace('"host"', '"features":{},"host"').replace('"version":4', '"version":5')


_NOTIFIED = "notify of the configuration of a"
_STATE = "/brokers/topics/a/partitions/0/state"
_LATE_CONFIG = (f"tree {_STATE}", f"writes {_STATE}", "requests 2 a-0", "requests 2 brokers", "requests 2 versions")
_PRODUCER_IDS = "/latest_producer_id_block"
_REGISTRATION = "/brokers/ids/100"

WANTED: tuple[Wanted, ...] = (
    # the broker does not follow changes of configurations yet
    *(Wanted("unclean_allowed_when_it_is_too_late", _NOTIFIED, place, _not_done) for place in _LATE_CONFIG),
    # live leaders are taken when a request leaves, not when it is queued
    Wanted("a_broker_answers_late", "3 answers LeaderAndIsr at last", "requests 3 a-0", _leader_2_not_named),
    # the node around our controller speaks 3.9 in these plays, only the controller speaks the older protocol
    *(
        Wanted(f"a_small_life_in_{protocol}", "start the controller", f"{kind} {_PRODUCER_IDS}", instead)
        for protocol in ("2_8", "2_4", "2_2", "1_0", "0_10_2")
        for kind, instead in (("tree", lambda _: "null v0"), ("writes", _not_done))
    ),
    *(
        Wanted(f"a_small_life_in_{protocol}", "start the controller", f"{kind} {_REGISTRATION}", _with_features)
        for protocol in ("2_4", "2_2", "1_0", "0_10_2")
        for kind in ("tree", "writes")
    ),
)


def unwanted(script: str, found: Iterable["Difference"]) -> list["Difference"]:
    """Those that nobody asked for."""
    return [d for d in found if not _is_newer_broker_list(d) and not any(w.explains(script, d) for w in WANTED)]


def _is_newer_broker_list(difference: "Difference") -> bool:
    """Ours is taken when a request leaves, not when it is queued: a list that is old by then is never told."""
    if not difference.place.endswith(f" {BROKERS}") or not difference.klamm or not difference.kafka:
        return False
    return difference.klamm[-1] == difference.kafka[-1] and _is_within(difference.klamm, difference.kafka)


def _is_within(part: Sequence[str], whole: Sequence[str]) -> bool:
    rest = iter(whole)
    return all(item in rest for item in part)
