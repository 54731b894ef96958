"""How the driver makes a micro-batch visible, all of it or nothing, whoever dies when.

Tasks leave open transactions. The commit of the micro-batch is one record in the topic of commits: before it nothing of
the batch is ever committed, after it all transactions in it are, by this run or by the next one. See
docs/decisions/0017-spark-sink.md.
"""

from collections.abc import Callable, Collection, Sequence

from klamm.spark.read_client import ReadClient
from klamm.spark.sink_commits import (
    Commit,
    CommitsUnusable,
    CommitTopic,
    TaskPart,
    commit_timeout_ms,
    commit_transactional_id,
    generation_of,
    run_prefix,
    run_prefix_of,
    task_prefix,
)
from klamm.spark.sink_task import (
    SinkJob,
    WriteName,
    check_last,
    commit_part,
    transactions_of,
)
from klamm.spark.sink_transactions import OpenTransaction


class BatchCommit:
    """Commits or aborts what the tasks of one micro-batch wrote."""

    def __init__(self, brokers: ReadClient, job: SinkJob, write: WriteName, now_ms: Callable[[], int]) -> None:
        self._brokers = brokers
        self._job = job
        self._write = write
        self._transactions = transactions_of(brokers)
        self._topic = CommitTopic(brokers, job.options, now_ms)

    def commit(self, parts: Sequence[TaskPart]) -> None:
        """Commit what the tasks wrote, unless an earlier run did it. Raises CommitsUnusable, Unreachable."""
        own, last = self._open()
        if last is not None and last.batch == self._write.batch:
            commit = self._completion(last, parts)
        else:
            written = tuple(part for part in parts if part.transaction is not None)
            commit = Commit(self._write.batch, written, self._job.options.topic)
            self._check_open(commit.parts)
        if commit is None or not commit.parts:
            self._abort_left(last, parts)
        else:
            self._topic.write(self._write.query, commit, own, self._transactions)
            if lost := self._settle(commit):
                raise CommitsUnusable(
                    f"{self._name}: the transactions of the tasks {_numbers(lost)} were aborted while it was "
                    "committed, for example by kafka.transaction.timeout.ms. Start the query again: it writes the "
                    "rows of these tasks again if they are the same."
                )
            self._abort_others(commit)

    def abort(self, parts: Sequence[TaskPart]) -> None:
        """Abort what the tasks wrote, unless the batch is committed. Raises CommitsUnusable, Unreachable.

        Where a newer run of the query has committed later batches, this batch is complete, with what that run or this
        one wrote of it, and other transactions of this run are superfluous, too.
        """
        _, last = self._begin()
        mine = last if last is not None and last.batch == self._write.batch else None
        kept = {part.transaction for part in mine.parts} if mine else set()
        for part in parts:
            if part.transaction is not None and part.transaction not in kept:
                self._brokers.client.run(self._transactions.end(part.transaction, commit=False))
        self._abort_left(last, parts)

    @property
    def _name(self) -> str:
        """The name of the batch in error texts."""
        return str(self._write)

    def _open(self) -> tuple[OpenTransaction, Commit | None]:
        """The transaction for a commit and the last commit, see `_begin`. Raises CommitsUnusable for an old batch."""
        own, last = self._begin()
        check_last(last, self._write, self._job.options.topic)
        return own, last

    def _begin(self) -> tuple[OpenTransaction, Commit | None]:
        """The transaction for a commit, which fences older runs of the query, and the last commit."""
        name = commit_transactional_id(self._write.query)
        own = self._brokers.client.run(self._transactions.begin(name, commit_timeout_ms(self._job.options)))
        return own, self._topic.last(self._write.query)

    def _check_open(self, parts: Collection[TaskPart]) -> None:
        """Raise CommitsUnusable where a transaction is not open any more: then nothing is committed."""
        for part in parts:
            transaction, partition = part.transaction, part.partition
            assert transaction is not None
            assert partition is not None
            if not self._brokers.client.run(self._transactions.is_open(transaction, partition)):
                raise CommitsUnusable(
                    f"{self._name}: the transaction of task {part.task} was aborted before the commit, by "
                    "kafka.transaction.timeout.ms or by another run of the query. Nothing of the batch is committed. "
                    "Raise the timeout or make batches smaller, or stop the other run; then start the query again."
                )

    def _settle(self, commit: Commit) -> list[TaskPart]:
        """Commit all transactions of a commit; returns those parts whose transactions were aborted."""
        return [p for p in commit.parts if not commit_part(self._brokers, self._transactions, self._write, p)]

    def _completion(self, last: Commit, parts: Sequence[TaskPart]) -> Commit | None:
        """What is left to commit where an earlier run decided this batch; None where all of it is committed.

        Transactions that were aborted before the earlier run could commit them are replaced by those of the same tasks
        in this run, if these have the same rows. Raises CommitsUnusable if not.
        """
        lost = {part.task for part in self._settle(last)}
        if not lost:
            return None
        mine = {part.task: part for part in parts if part.rows}
        earlier = {part.task: part for part in last.parts}
        different = [
            task
            for task in sorted(mine.keys() | earlier.keys())
            if task not in mine
            or task not in earlier
            or (mine[task].rows, mine[task].digest) != (earlier[task].rows, earlier[task].digest)
        ]
        if different:
            raise CommitsUnusable(
                f"{self._name}: an earlier run committed a part of this batch, and the transactions of its tasks "
                f"{', '.join(map(str, sorted(lost)))} were aborted by their timeout. The rows of the tasks "
                f"{', '.join(map(str, different))} are now others, or in another order, so the batch cannot be "
                "completed. Make the order of rows repeatable, or start the query with a new checkpointLocation."
            )
        again = [mine[task] for task in sorted(lost)]
        self._check_open(again)
        return last._replace(parts=tuple(mine[part.task] if part.task in lost else part for part in last.parts))

    def _abort_others(self, commit: Commit) -> None:
        """Abort open transactions of tasks that do not belong to the commit: of killed and of duplicate attempts.

        Without it readers with read_committed would wait for their timeout.
        """
        self._begin_again(self._ongoing() - commit.transactional_ids)

    def _abort_left(self, last: Commit | None, parts: Sequence[TaskPart]) -> None:
        """Abort open transactions of this run, and those that the last commit left out.

        Others may be of a newer run, which has begun the next batch or has even committed it since.
        """
        kept = last.transactional_ids if last else frozenset[str]()
        written = {part.transaction.transactional_id for part in parts if part.transaction is not None}
        own = {run_prefix(self._write.query, self._job.run), *map(run_prefix_of, written)}
        over = {generation_of(name) for name in kept}
        left = {name for name in self._ongoing() if run_prefix_of(name) in own or generation_of(name) in over}
        self._begin_again(left - kept)

    def _ongoing(self) -> frozenset[str]:
        """The transactional ids of tasks of the query that have an open transaction."""
        return frozenset(self._brokers.client.run(self._transactions.ongoing(task_prefix(self._write.query))))

    def _begin_again(self, names: Collection[str]) -> None:
        """Abort what these transactional ids have open."""
        for name in sorted(names):
            self._brokers.client.run(self._transactions.begin(name, self._job.options.transaction_timeout_ms))


def _numbers(parts: Sequence[TaskPart]) -> str:
    """Return the numbers of the tasks as text."""
    return ", ".join(str(part.task) for part in parts)
