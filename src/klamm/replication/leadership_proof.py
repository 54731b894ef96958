"""Proof that no other broker leads a partition yet: every other member of its ISR fetches it from this broker again.

A new leader is a member of the ISR, and it fetches the partition from nobody from then on. A follower makes the next
fetch of a session once it has the answer to the one before. So a fetch that follows an answer was made after it. The
time at which a fetch arrives proves nothing: it may have waited in the socket of a paused process.

Answers are numbered, and each fetch session keeps the number of its last one. See decision 0031.
"""

import asyncio

from klamm.replication.fetch_waiter import FetchWaiter
from klamm.replication.partition import Partition


class LeadershipProof:
    """Complete once every other member of the partition's maximal ISR has fetched since it began."""

    __slots__ = ("_partition", "_since", "proven", "waiting")

    def __init__(self, partition: Partition, since: int) -> None:
        self._partition = partition
        self._since = since
        self.proven: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting = 0
        """How many requests wait for it."""

    def check(self) -> None:
        """Complete the proof if it can be."""
        if not self.proven.done() and self._partition.is_leader and not self._partition.unheard_members(self._since):
            self.proven.set_result(None)

    def request_fetches(self) -> None:
        """Have the members that have not fetched yet do so."""
        self._partition.answer_fetches_at_once(self._partition.unheard_members(self._since))

    def leave(self) -> None:
        """Wait no more; without anybody who waits, the proof is given up."""
        self.waiting -= 1
        if not self.waiting:
            self.proven.cancel()


class LeadershipProofs:
    """The proofs under way, and the numbers of the answers to followers."""

    def __init__(self) -> None:
        self._answers = 0
        self._under_way: dict[tuple[Partition, int], LeadershipProof] = {}

    def begin(self, partition: Partition) -> LeadershipProof:
        """Begin a proof, or wait for one that began after the same answers. Whoever calls this calls `leave`."""
        key = partition, self._answers
        proof = self._under_way.get(key)
        if proof is None or proof.proven.done():  # where it was given up, it proves nothing
            proof = self._under_way[key] = LeadershipProof(partition, self._answers)
            proof.check()
            proof.request_fetches()
        proof.waiting += 1
        return proof

    def on_answer(self, waiter: FetchWaiter) -> None:
        """Number the answer to a follower's fetch, which has just been made."""
        self._answers += 1
        waiter.answered_at = self._answers
        waiter.answers_at_once = False

    def on_fetch(self, waiter: FetchWaiter) -> None:
        """Note that a follower has fetched, and complete the proofs that waited only for that."""
        waiter.fetched_after = waiter.answered_at
        for key, proof in list(self._under_way.items()):
            proof.check()
            if proof.proven.done():
                del self._under_way[key]
