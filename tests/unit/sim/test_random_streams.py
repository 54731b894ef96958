from klamm.sim.cluster_tier.faults import FAULTS as TIER_FAULTS
from klamm.sim.cluster_tier.verbs import OPERATIONS as TIER_VERBS
from klamm.sim.faults.table import FAULTS
from klamm.sim.random_streams import FORMER_NAMES, stream_of
from klamm.sim.workload.verbs import SCRIPTED_VERBS, VERBS


def test_every_renamed_fault_or_verb_of_the_simulation_exists_and_keeps_its_random_stream() -> None:
    actions = {*FAULTS, *TIER_FAULTS, *VERBS, *SCRIPTED_VERBS, *TIER_VERBS}

    assert set(FORMER_NAMES) <= actions
    assert stream_of("cut links one by one") == "swizzle"
    assert stream_of("kill") == "kill"


def test_no_two_actions_of_the_simulation_share_a_random_stream() -> None:
    actions = {*FAULTS, *TIER_FAULTS, *VERBS, *SCRIPTED_VERBS, *TIER_VERBS}

    assert len({stream_of(action) for action in actions}) == len(actions)
