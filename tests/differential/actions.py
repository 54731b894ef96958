"""The random actions of a generated script.

Actions whose results differ on purpose, or at random, are never done; each such condition gives its reason.
"""

from typing import Any

from tests.differential.calls import BROKERS
from tests.differential.draws import between, flag, one_of, several, some_of
from tests.differential.scenario import TOPICS, Scenario, assignments, brokers, replicas
from tests.differential.script import STORAGE_ERROR
from tests.differential.verbs.admin import PREFERRED, UNCLEAN

from klamm.zk.znodes import ISR_CHANGES, LOG_DIR_EVENTS

UNCLEAN_ALLOWED = "unclean.leader.election.enable"
NONSENSE = ("no json", '{"version":1}', "")
off_by_one = between(-1, 1)


class GeneratedScenario(Scenario):
    """A generated script and its random actions; each draws its arguments from the seed."""

    def do_next(self, draw: Any) -> None:
        """Do one random action; some are drawn more often than others."""
        getattr(self, draw(one_of(WEIGHTED)))(draw)

    # ---- brokers

    def kill(self, draw: Any) -> None:
        """A broker's session is closed."""
        if len(self.live) > 1:
            broker = self._draw_live_broker(draw)
            self._gone(broker)
            self.do("kill", broker)

    def kill_two(self, draw: Any) -> None:
        """Two brokers die in one broker change event."""
        if len(self.live) > 2:
            pair = draw(some_of(sorted(self.live), 2))
            for broker in pair:
                self._gone(broker)
            self.do("kill_together", *pair)

    def start(self, draw: Any) -> None:
        """A dead broker registers."""
        if dead := sorted(set(BROKERS) - self.live):
            broker = draw(one_of(dead))
            self.live.add(broker)
            self.do("start", broker)

    def bounce(self, draw: Any) -> None:
        """A broker restarts; sometimes another dies in the same event."""
        broker = self._draw_live_broker(draw)
        others = sorted(self.live - {broker}) if len(self.live) > 2 else []
        if others and draw(between(0, 3)) == 0 and not self._something_is_queued():
            other = draw(one_of(others))
            self._gone(other)
            self.do("bounce", broker, [other])
        else:
            self.do("bounce", broker)

    def shut_down(self, draw: Any) -> None:
        """A live broker sends ControlledShutdown."""
        broker = self._draw_live_broker(draw)
        self.leaving.add(broker)
        self.do("controlled_shutdown", broker)

    def shut_down_oddly(self, draw: Any) -> None:
        """ControlledShutdown of any broker, in any version, perhaps with an old broker epoch."""
        broker, version, is_stale = draw(brokers), draw(between(1, 3)), draw(flag)
        self.leaving.add(broker)
        self.do("controlled_shutdown", broker, version=version, stale_broker=is_stale)

    def move_to_another_rack(self, draw: Any) -> None:
        """A broker's registration changes its rack."""
        self.has_racks = True
        self.do("change_endpoints", self._draw_live_broker(draw), draw(one_of(["left", "right"])))

    def break_a_disk(self, draw: Any) -> None:
        """A log directory of one broker fails. One broker at a time: the order of answers from several is random."""
        if self.broken is None:
            self.broken = self._draw_live_broker(draw)
            self.do("fail", self.broken, "LeaderAndIsr", STORAGE_ERROR)
            self.do("log_dir_event", self.broken)

    def mend_a_disk(self, draw: Any) -> None:
        """The broker with the failed log directory restarts with a working one."""
        if self.broken is not None:
            self.do("fail", self.broken, "LeaderAndIsr", 0)
            self.do("bounce", self.broken)
            self.broken = None

    def _gone(self, broker: int) -> None:
        """Remove a dead broker from the record of live ones."""
        self.live.discard(broker)
        if self.broken == broker:
            self.broken = None
        self.leaving.discard(broker)

    def lose_an_answer(self, draw: Any) -> None:
        """The next response of a broker to a control request is lost."""
        self.do("lose_answer", self._draw_live_broker(draw), draw(one_of(["LeaderAndIsr", "UpdateMetadata"])))

    def allocate_ids(self, draw: Any) -> None:
        """A broker sends AllocateProducerIds, perhaps with an old broker epoch."""
        self.do("allocate_producer_ids", draw(brokers), stale_broker=draw(between(0, 3)) == 0)

    def set_a_feature(self, draw: Any) -> None:
        """UpdateFeatures with a random level and upgrade type."""
        name = draw(one_of(["", "anything", "metadata.version"]))
        self.do("update_feature", name, draw(between(0, 3)), draw(between(1, 3)))

    # ---- topics

    def create(self, draw: Any) -> None:
        """Create a topic by the API or by znodes."""
        topic, assignment, is_unclean = draw(one_of(TOPICS)), draw(assignments), draw(flag)
        if self._assignment(topic) or self._is_queued(topic):
            return
        config = {UNCLEAN_ALLOWED: "true"} if is_unclean else {}
        if draw(flag):
            uniform = [each[: min(map(len, assignment))] for each in assignment]
            self.do("create_topics", {topic: uniform}, config, timeout_ms=0)
        else:
            self.do("create_topic", topic, assignment, config)

    def grow(self, draw: Any) -> None:
        """Add a partition to a topic by its znode."""
        topic, more = draw(one_of(TOPICS)), draw(replicas)
        now = self._assignment(topic)
        if now and len(now) < 5 and not self._is_moving(topic) and not self._is_queued(topic):
            self.do("grow_topic", topic, [*(list(now[i].replicas) for i in sorted(now)), more])

    def grow_by_api(self, draw: Any) -> None:
        """CreatePartitions, also for topics that are reassigned or deleted, where it is rejected.

        Not where only some brokers have a rack: Kafka fails there.
        """
        topic, more, validate_only = draw(one_of(TOPICS)), draw(replicas), draw(flag)
        now = self._assignment(topic)
        if now and len(now) < 5 and not self.has_racks:
            self.do(
                "create_partitions", topic, len(now) + 1, [more[: len(now[0].target)]],
                validate_only=validate_only, timeout_ms=0,
            )  # fmt: skip

    def delete(self, draw: Any) -> None:
        """Delete a topic that is not being reassigned: Kafka deletes it at once in that case, klamm waits."""
        topic = draw(one_of(TOPICS))
        if self._assignment(topic) and not self._is_queued(topic) and not self._is_moving(topic):
            if draw(flag):
                self.do("delete_topics", topic, timeout_ms=0)
            else:
                self.do("delete_topic", topic)

    def delete_nothing(self, draw: Any) -> None:
        """Delete a topic that does not exist, by the API and by a znode.

        Where a deletion waits, Kafka sends its state to all brokers once more.
        """
        if not self._something_is_queued():
            self.do("delete_topic", "nothing")
            self.do("delete_topics", "nothing", timeout_ms=0)

    def disturb_a_deletion(self, draw: Any) -> None:
        """Send requests about a topic whose deletion waits; they are refused."""
        if queued := [t for t in TOPICS if self._is_queued(t) and self._assignment(t)]:
            first = (draw(one_of(queued)), 0)
            self.do("reassign", {first: draw(replicas)})
            self.do("elect", draw(one_of([PREFERRED, UNCLEAN])), [first], timeout_ms=1000)
            self.do("delete_topics", first[0], timeout_ms=0)

    def configure(self, draw: Any) -> None:
        """Change unclean elections and min ISR of a topic."""
        topic = draw(one_of(TOPICS))
        if self._assignment(topic):
            least = {"min.insync.replicas": str(draw(between(1, 3)))} if draw(flag) else {}
            self.do("set_config", topic, {UNCLEAN_ALLOWED: str(draw(flag)).lower(), **least})
            self.do("notify_config", topic)

    def configure_all(self, draw: Any) -> None:
        """Change the brokers' default for unclean elections."""
        self.do("configure_brokers", {UNCLEAN_ALLOWED: str(draw(flag)).lower()})

    def tell_nonsense(self, draw: Any) -> None:
        """Write a malformed notification znode."""
        directory = draw(one_of([f"{ISR_CHANGES}/isr_change_", f"{LOG_DIR_EVENTS}/log_dir_event_"]))
        self.do("notify", directory, draw(one_of(NONSENSE)))

    # ---- ISRs

    def alter_isr(self, draw: Any) -> None:
        """A leader asks for an ISR with one replica more or less."""
        if (partition := self._partition(draw)) is not None:
            topic, number, now, isr = partition
            other = draw(one_of(now.replicas))
            changed = [b for b in isr if b != other] if other in isr else [*isr, other]
            if changed:
                self.do("leader_asks", topic, changed, number)

    def join_all(self, draw: Any) -> None:
        """A leader requests an ISR with all live replicas."""
        if (partition := self._partition(draw)) is not None:
            topic, number, now, isr = partition
            joined = [*isr, *(b for b in now.replicas if b in self.live and b not in isr)]
            self.do("leader_asks", topic, joined, number)

    def alter_wrongly(self, draw: Any) -> None:
        """AlterPartition with wrong epochs, versions or senders."""
        if (partition := self._partition(draw)) is not None:
            topic, number, _, isr = partition
            version = draw(between(0, 3))
            self.do(
                "leader_asks", topic, list(isr[:1]), number,
                leader_epochs_off=draw(off_by_one), partition_epochs_off=draw(off_by_one), version=version,
                recovery=draw(between(0, 1)) if version else 0, stale_broker=draw(flag),
            )  # fmt: skip

    def write_isr(self, draw: Any) -> None:
        """A leader of an old protocol level writes its ISR itself and adds a notification."""
        if (partition := self._partition(draw)) is not None:
            topic, number, now, isr = partition
            other = draw(one_of(now.replicas))
            changed = [b for b in isr if b != other] if other in isr else [*isr, other]
            if changed and self._isr_leader(topic, number) in changed:
                self.do("leader_writes", topic, changed, number)
                self.do("notify_isrs", (topic, number))

    # ---- moves and elections

    def reassign(self, draw: Any) -> None:
        """Reassign partitions by the API or by the znode of the old tools.

        Not where in-sync replicas would be dropped or no new replica could lead: klamm deviates there on purpose.
        """
        target, by_api = draw(replicas), draw(flag)
        partition = self._partition(draw)
        if partition is None or set(partition[2].adding) & set(partition[3]):
            return
        if self._may_lead.isdisjoint(partition[3]) or self._may_lead.isdisjoint(target):
            return
        targets = {partition[:2]: target}
        if not by_api:
            is_new = not partition[2].is_being_reassigned or list(partition[2].target) != target
            if is_new and set(target) <= self.live and "/admin/reassign_partitions" not in self.contexts[0]._tree:
                self.do("request_reassignment", targets)
            return
        other = self._partition(draw)
        if (
            other is not None
            and other[0] != partition[0]
            and not other[2].is_being_reassigned
            and set(target) <= self.live
        ):
            targets[other[:2]] = target  # of another topic: of one topic ours writes both at once
        self.do("reassign", targets)

    def cancel(self, draw: Any) -> None:
        """Cancel a reassignment."""
        partition = self._partition(draw)
        if partition is not None and not set(partition[2].adding) & set(partition[3]):
            self.do("reassign", {partition[:2]: None})

    def list_moves(self, draw: Any) -> None:
        """List the reassignments."""
        self.do("list_reassignments", None)

    def elect(self, draw: Any) -> None:
        """A preferred or unclean election of one partition by the API."""
        if (partition := self._partition(draw)) is not None:
            self.do("elect", draw(one_of([PREFERRED, UNCLEAN])), [partition[:2]], timeout_ms=1000)

    def elect_all(self, draw: Any) -> None:
        """A preferred or unclean election of all partitions by the API."""
        self.do("elect", draw(one_of([PREFERRED, UNCLEAN])), None, timeout_ms=1000)

    def prefer(self, draw: Any) -> None:
        """A preferred leader election by the znode of the old tools."""
        partition = self._partition(draw)
        if partition is not None and "/admin/preferred_replica_election" not in self.contexts[0]._tree:
            self.do("request_preferred", partition[:2])

    # ---- who is controller

    def fail_over(self, draw: Any) -> None:
        """The controller fails over."""
        if not self._something_is_queued():
            self.do("delete_controller")

    def fail_over_blindly(self, draw: Any) -> None:
        """Brokers and topics change while there is no controller."""
        if self._something_is_queued():
            return
        self.do("usurp", 9)
        for action in draw(several(one_of(WITHOUT_CONTROLLER), 3)):
            getattr(self, action)(draw)
        self.do("delete_controller")

    def lose_the_session(self, draw: Any) -> None:
        """The ZooKeeper session of the node under test expires."""
        if not self._something_is_queued():
            self.do("expire")

    def _come_and_go(self, draw: Any) -> None:
        """One broker restarts, or a dead one returns."""
        broker = draw(brokers)
        self.do("bounce" if broker in self.live else "start", broker)
        self.live.add(broker)


WITHOUT_CONTROLLER: list[str] = ["_come_and_go", "_come_and_go", "configure", "prefer", "kill"]
"""What may be done while no controller is active."""

WEIGHTS: dict[str, int] = {
    "kill": 5,
    "kill_two": 1,
    "start": 7,
    "bounce": 2,
    "shut_down": 2,
    "shut_down_oddly": 1,
    "move_to_another_rack": 1,
    "break_a_disk": 1,
    "mend_a_disk": 1,
    "lose_an_answer": 1,
    "allocate_ids": 1,
    "set_a_feature": 1,
    "create": 3,
    "grow": 2,
    "grow_by_api": 1,
    "delete": 3,
    "delete_nothing": 1,
    "disturb_a_deletion": 1,
    "configure": 2,
    "configure_all": 1,
    "tell_nonsense": 1,
    "alter_isr": 4,
    "join_all": 6,
    "alter_wrongly": 2,
    "write_isr": 2,
    "reassign": 5,
    "cancel": 1,
    "list_moves": 1,
    "elect": 2,
    "elect_all": 1,
    "prefer": 1,
    "fail_over": 1,
    "fail_over_blindly": 1,
    "lose_the_session": 1,
}
"""By action: how often it is drawn, compared with the others."""

WEIGHTED: list[str] = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
