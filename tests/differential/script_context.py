"""All verbs together."""

from tests.differential.verbs.admin import AdminVerbs
from tests.differential.verbs.brokers import BrokerVerbs
from tests.differential.verbs.controllers import ControllerVerbs
from tests.differential.verbs.requests import RequestVerbs
from tests.differential.verbs.znodes import ZnodeVerbs


class ScriptContext(ControllerVerbs, BrokerVerbs, ZnodeVerbs, RequestVerbs, AdminVerbs):
    """What a script can do: the verbs of all modules in `verbs`."""
