"""Which steps faults wait for."""

from klamm.sim.faults.injection_points import Step, StepKind


def test_the_simulation_recognizes_an_election_only_by_a_write_of_the_controller_epoch() -> None:
    def write(what: str, actor: int = 1) -> Step:
        return Step(StepKind.WRITE, actor, 0, what)

    assert write("/controller /controller_epoch").becomes_controller
    assert write("/controller /controller /controller_epoch").becomes_controller  # from who holds it
    assert not write("/controller_epoch").becomes_controller
    assert not write("/controller_epoch /brokers/topics/t").becomes_controller
    assert not write("/controller /controller_epoch", actor=0).becomes_controller


def test_the_simulation_recognizes_a_registration_by_the_write_of_the_broker_znode() -> None:
    assert Step(StepKind.WRITE, 1, 0, "/brokers/ids/1").registers
    assert not Step(StepKind.WRITE, 1, 0, "/brokers/topics/t").registers
