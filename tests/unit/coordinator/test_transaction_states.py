"""The moves of a transaction are exactly Apache Kafka's."""

from itertools import product

from klamm.coordinator.transactions.states import BY_ID, MAY_EXPIRE, STATE_IDS, TransactionState, can_move

KAFKA_MOVES = """
    Empty>Empty  CompleteCommit>Empty  CompleteAbort>Empty
    Ongoing>Ongoing  Empty>Ongoing  CompleteCommit>Ongoing  CompleteAbort>Ongoing
    Ongoing>PrepareCommit  Ongoing>PrepareAbort  PrepareEpochFence>PrepareAbort  Ongoing>PrepareEpochFence
    PrepareCommit>CompleteCommit  PrepareAbort>CompleteAbort
    Empty>Dead  CompleteCommit>Dead  CompleteAbort>Dead
"""
KAFKA_IDS = "Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead PrepareEpochFence"


def test_the_allowed_transaction_state_transitions_equal_kafkas() -> None:
    moves = {f"{a}>{b}" for a, b in product(TransactionState, repeat=2) if can_move(a, b)}

    assert moves == set(KAFKA_MOVES.split())


def test_transaction_states_have_kafkas_ids() -> None:
    assert list(map(str, BY_ID)) == KAFKA_IDS.split()
    assert [STATE_IDS[state] for state in BY_ID] == list(range(8))


def test_only_transactional_ids_without_an_open_transaction_may_expire() -> None:
    assert {"Empty", "CompleteCommit", "CompleteAbort"} == MAY_EXPIRE
