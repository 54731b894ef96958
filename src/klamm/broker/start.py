"""What ends a start: one sentence naming cause, place and remedy."""

from klamm.model.errors import KlammError


class CannotStart(KlammError):
    """This node cannot run as it is configured, or in the state its surroundings are in."""
