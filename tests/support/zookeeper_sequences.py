"""Random sequences of ZooKeeper operations, played on two servers, and the shortest sequence on which they differ."""

import struct
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

from tests.support.zookeeper_wire import Connect, Normalizer, Wire, connect_frame, request_frame

from klamm.runtime.randomness import Rng
from klamm.zk import jute, multi, requests
from klamm.zk.acl import OPEN_ACL, Acl
from klamm.zk.operations import Check, Create, Delete, Op, Set
from klamm.zk.requests import Opcode

SESSIONS = 3
PACKET_LIMIT = 0xFFFFF
EVENT_XID = -1
NAMES = ("", "/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/z", "/e", "/a/n0000000001", "/a/n0000000002", "/b/n0000000000")
PARENTS = ("", "", "/a", "/a", "/b", "/a/x", "/e")
ODD = ("/a/", "/a//x", "/../b", "/a/./x", "/\0", "/a\x01", "/ä", "/a b")
ODD_WHOLE = ("/", "a", "a/b", "//", "/zookeeper", "/zookeeper/config", "/zookeeper/quota")
CONTENTS = (None, b"", b"1", b"two", bytes(300))
VERSIONS = (-1, -1, -1, 0, 0, 1, 2, -2)
CREDENTIALS = (("digest", b"u1:p"), ("digest", b"u1:p"), ("digest", b"u2:q"), ("digest", b"nobody"), ("ip", b""))
U1 = "u1:cFq7Jd8SDvIRgl6HZEdaSg1RH8k="
ACLS: Sequence[Sequence[Acl]] = (
    OPEN_ACL, OPEN_ACL, OPEN_ACL, (Acl(1, "world", "anyone"),), (Acl(31 - 8, "world", "anyone"),),
    (Acl(31, "auth", ""),), (Acl(31, "auth", ""), Acl(1, "world", "anyone")), (Acl(31, "digest", U1),),
    (Acl(1, "world", "anyone"), Acl(30, "digest", U1)), (Acl(31, "ip", "127.0.0.1"),), (Acl(31, "ip", "10.0.0.1"),),
    (), (Acl(31, "world", "all"),), (Acl(31, "none", "x"),), (Acl(31, "digest", "x"),), (Acl(16, "world", "anyone"),),
)  # fmt: skip


class RequestSpec(NamedTuple):
    opcode: int
    body: Callable[[str], bytes]
    """Its body, given the root of the sequence."""


class Step(NamedTuple):
    kind: str
    session: int
    details: Any = None


# ---- making them


class SequenceGenerator:
    """Generates one sequence of operations."""

    def __init__(self, dice: Rng) -> None:
        self._rng = dice

    def sequence(self, shortest: int, longest: int) -> list[Step]:
        wanted, made = self._rng.randint(shortest, longest), 0
        steps: list[Step] = []
        while made < wanted:
            step = self._step()
            steps.append(step)
            made += len(step.details) if step.kind == "ask" else 1
        return steps

    def _step(self) -> Step:
        """A random step of one session, such as requests, a lost connection, or the end of the session."""
        dice = self._rng
        session = dice.randrange(SESSIONS)
        kind = dice.choices(
            ("ask", "drop", "watches", "take over", "expire", "close", "wrong password", "too new", "auth",
             "refused auth", "large", "unknown"),
            (80, 3, 5, 1, 2, 1, 0.5, 0.5, 3, 0.3, 0.3, 0.3),
        )[0]  # fmt: skip
        details: Any = None
        if kind == "ask":
            details = [self._random_request() for _ in range(dice.choice((1, 1, 2, 4, 8)))]
            # what follows a change of an ACL at once is judged by either ACL, as it happens: so nothing does
            details = [a for a in details if a.opcode == Opcode.SET_ACL][:1] or details
        elif kind == "auth":
            details = dice.choice(CREDENTIALS)
        elif kind == "watches":
            details = dice.randrange(-5, 40), *([self._name() for _ in range(dice.randrange(3))] for _ in range(3))
        elif kind == "large":
            details = dice.choice((PACKET_LIMIT, PACKET_LIMIT + 1))
        elif kind == "unknown":
            details = dice.choice((23, 99, 999, -12, Opcode.CHECK))  # a check is for multis only
        return Step(kind, session, details)

    def _name(self) -> str:
        return self._rng.choice(NAMES)

    def _path(self) -> Callable[[str], str]:
        """A path below the root, rarely an unusual one."""
        if self._rng.random() < 0.03:
            whole = self._rng.choice(ODD_WHOLE)
            return lambda root: whole
        name = self._rng.choice(ODD) if self._rng.random() < 0.03 else self._name()
        return lambda root: root + name

    def _random_request(self) -> RequestSpec:
        dice = self._rng
        opcode = dice.choices(
            (Opcode.CREATE, Opcode.CREATE2, Opcode.SET_DATA, Opcode.DELETE, Opcode.MULTI, Opcode.GET_DATA,
             Opcode.EXISTS, Opcode.GET_CHILDREN, Opcode.GET_CHILDREN2, Opcode.MULTI_READ, Opcode.GET_ACL,
             Opcode.SET_ACL, Opcode.SYNC, Opcode.PING, Opcode.ADD_WATCH),
            (10, 20, 15, 10, 12, 12, 10, 3, 10, 4, 3, 3, 1, 0.5, 2),
        )[0]  # fmt: skip
        if opcode in (Opcode.CREATE, Opcode.CREATE2, Opcode.SET_DATA, Opcode.DELETE):
            make = self._operation(opcode)
            return RequestSpec(opcode, lambda root: body_of(make(root)))
        if opcode == Opcode.MULTI:
            kinds = (Opcode.CREATE2, Opcode.CREATE2, Opcode.SET_DATA, Opcode.DELETE, Opcode.CHECK)
            makes = [self._operation(dice.choice(kinds)) for _ in range(dice.choice((1, 2, 2, 3, 5)))]
            return RequestSpec(opcode, lambda root: multi.multi([m(root) for m in makes], "", "").payload[4:])
        if opcode == Opcode.MULTI_READ:
            paths = [self._path() for _ in range(dice.choice((1, 2, 3)))]
            read = dice.choice((multi.multi_get, multi.multi_children))
            return RequestSpec(opcode, lambda root: read([p(root) for p in paths], "").payload[4:])
        path, watch = self._path(), dice.random() < 0.6
        if opcode == Opcode.SET_ACL:
            acl, version = dice.choice(ACLS), dice.choice(VERSIONS)
            return RequestSpec(opcode, lambda root: jute.text(path(root)) + jute.acls(acl) + jute.pack_int(version))
        if opcode in (Opcode.GET_ACL, Opcode.SYNC):
            return RequestSpec(opcode, lambda root: jute.text(path(root)))
        if opcode == Opcode.PING:
            return RequestSpec(opcode, lambda root: b"")
        if opcode == Opcode.ADD_WATCH:
            name = self._name()
            return RequestSpec(opcode, lambda root: requests.watch_subtree(root + name).payload[4:])
        name = self._name()  # reads of the whole root would differ by what else there is
        return RequestSpec(opcode, lambda root: jute.text(root + name) + bytes([watch]))

    def _operation(self, opcode: int) -> Callable[[str], Op]:
        dice = self._rng
        path, data, version = self._path(), dice.choice(CONTENTS), dice.choice(VERSIONS)
        if opcode == Opcode.SET_DATA:
            return lambda root: Set(path(root), data, version)
        if opcode == Opcode.DELETE:
            return lambda root: Delete(path(root), version)
        if opcode == Opcode.CHECK:
            return lambda root: Check(path(root), version)
        ephemeral, acl = dice.random() < 0.3, dice.choice(ACLS) if dice.random() < 0.2 else OPEN_ACL
        if dice.random() < 0.25:
            parent = dice.choice(PARENTS)
            return lambda root: Create(f"{root}{parent}/n", data, ephemeral, True, acl)
        return lambda root: Create(path(root), data, ephemeral, False, acl)


def body_of(op: Op) -> bytes:
    """The request body of an operation."""
    if isinstance(op, Create):
        return requests.create(op).payload[4:]
    if isinstance(op, Set):
        return requests.set_data(op).payload[4:]
    return jute.text(op.path) + jute.pack_int(op.version)


# ---- carrying them out


class Client:
    """A client's session; it reconnects whenever it is used without a connection."""

    def __init__(self, side: "ServerUnderTest", number: int) -> None:
        self._side = side
        self._number = number
        self._lives = count(1)
        self._xids = count(1)
        self._wire: Wire | None = None
        self.id = 0
        self._password = bytes(16)
        self.last_zxid = 0
        self.seen: list[Any] = []
        """What came, in order."""

    def connect(self, password: bytes | None = None, ahead: int = 0) -> None:
        """Connect, with the session's password or another one."""
        self._wire = self._side.connect()
        last_zxid = self.last_zxid + ahead
        self._wire.write(connect_frame(self.id, self._password if password is None else password, last_zxid))
        answer = self._wire.read()
        if answer is None:
            self.seen.append("turned away")
            self._wire = None
            return
        _, timeout_ms, session = struct.unpack_from(">iiq", answer)
        given = answer[16:]
        self.seen.append(("greeted", timeout_ms, len(given), "same" if session == self.id else bool(session)))
        if not session:
            self.drop()
        elif not self.id:
            self.id, self._password = session, given[4:20]
            self._side.sessions[session] = f"s{self._number}.{next(self._lives)}"

    def drop(self) -> None:
        """Close the connection without ending the session."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def reset(self) -> None:
        """Forget the session, because it has ended."""
        self.drop()
        self.id, self._password, self.last_zxid = 0, bytes(16), 0

    def send_requests(self, asked: Sequence[tuple[int, bytes]], xid: int | None = None, is_kept: bool = True) -> None:
        """Send all requests at once; then read every answer, with the events between them."""
        if self._wire is None:
            self.connect()
        if self._wire is None:
            return
        frames = [request_frame(next(self._xids) if xid is None else xid, o, body) for o, body in asked]
        self._wire.write(b"".join(frames))
        for opcode, _ in asked:
            while (frame := self._wire.read()) is not None:
                answers, zxid = struct.unpack_from(">iq", frame)
                if is_kept or answers == EVENT_XID:
                    self.seen.append(self._side.normal.answer(opcode, frame))
                if answers != EVENT_XID:
                    self.last_zxid = max(self.last_zxid, zxid)
                    break
            else:
                self.seen.append("connection closed")
                self.drop()
                return

    def read_events(self) -> None:
        """Read every event that was sent to this session by now."""
        if self._wire is not None:
            self.send_requests([(Opcode.EXISTS, jute.text("/") + b"\0")], is_kept=False)

    def take_over(self, password: bytes | None = None) -> None:
        """Reconnect the session; the server closes the first connection, even if it rejects the second."""
        self.read_events()
        earlier = self._wire
        self.connect(password)
        if earlier is not None:
            self.seen.append(("earlier connection", earlier.read()))
            earlier.close()

    def read_to_the_end(self) -> None:
        """Read what the server sends before it closes the connection."""
        while self._wire is not None:
            frame = self._wire.read()
            if frame is None:
                self.drop()
            else:
                self.seen.append(self._side.normal.answer(0, frame))


class ServerUnderTest:
    """One of the two servers, and the sessions on it."""

    def __init__(self, connect: Connect) -> None:
        self.connect = connect
        self.sessions: dict[int, str] = {}
        self.normal = Normalizer("", 0, self.sessions)
        self.clients = [Client(self, number) for number in range(SESSIONS)]

    def run_steps(self, root: str, steps: Sequence[Step]) -> list[list[Any]]:
        """Run the steps. Returns what each session received."""
        for client in self.clients:
            client.read_events()
            client.seen = []
        first = self.clients[0]
        self.normal = Normalizer(root, 0, self.sessions)
        first.send_requests([(Opcode.CREATE2, body_of(Create(root, b"")))])
        self.normal = Normalizer(root, first.last_zxid, self.sessions)
        for client in self.clients:
            client.seen = []
        for step in steps:
            self._run_step(root, self.clients[step.session], step)
        for client in self.clients:
            client.read_events()
        return [list(client.seen) for client in self.clients]

    def _run_step(self, root: str, client: Client, step: Step) -> None:
        details = step.details
        match step.kind:
            case "ask":
                client.send_requests([(a.opcode, a.body(root)) for a in details])
            case "drop":
                client.read_events()
                client.drop()
            case "watches":
                since, *lists = details
                body = jute.LONG.pack(self.normal.base + since)
                client.send_requests(
                    [(Opcode.SET_WATCHES, body + b"".join(jute.texts([root + n for n in ns]) for ns in lists))], -8
                )
            case "take over":
                client.take_over()
            case "expire" | "close":
                self._end_session(client, by_another=step.kind == "expire")
            case "wrong password":
                client.take_over(password=b"x" * 16)
                client.drop()
            case "too new":
                client.read_events()
                client.drop()
                client.connect(ahead=1_000)
            case "auth" | "refused auth":
                scheme, credentials = details or ("none", b"x")
                client.send_requests(
                    [(Opcode.AUTH, jute.pack_int(0) + jute.text(scheme) + jute.buffer(credentials))], -4
                )
                if not details:
                    client.read_to_the_end()
            case "large":
                path = root + "/a"
                room = details - 8 - len(body_of(Set(path, b"")))
                client.send_requests([(Opcode.SET_DATA, body_of(Set(path, bytes(room), 77)))])
            case "unknown":
                client.send_requests([(details, b"")])
                client.read_to_the_end()

    def _end_session(self, client: Client, by_another: bool) -> None:
        """End a session. The order in which its ephemeral znodes are deleted is undefined, so the events are sorted."""
        for each in self.clients:
            each.read_events()
        marks = [len(each.seen) for each in self.clients]
        if by_another:
            client.take_over()
        client.send_requests([(Opcode.CLOSE_SESSION, b"")])
        client.read_to_the_end()
        client.reset()
        for each, mark in zip(self.clients, marks, strict=True):
            each.read_events()
            each.seen[mark:] = sorted(each.seen[mark:], key=repr)


# ---- comparing


class Difference(NamedTuple):
    steps: Sequence[Step]
    session: int
    first: Any
    second: Any
    """From the first answer on that differs."""


class Comparison:
    """Two servers that received the same operations so far."""

    def __init__(self, first: Connect, second: Connect) -> None:
        self._connects = first, second
        self._sides = ServerUnderTest(first), ServerUnderTest(second)
        self._roots = count(1)

    def differ(self, steps: Sequence[Step]) -> Difference | None:
        """Play the steps on both servers; the first difference, or None."""
        root = f"/s{next(self._roots)}"
        one, two = (side.run_steps(root, steps) for side in self._sides)
        for session, (seen, also) in enumerate(zip(one, two, strict=True)):
            if seen != also:
                at = next(
                    (i for i, (a, b) in enumerate(zip(seen, also, strict=False)) if a != b), min(len(seen), len(also))
                )
                return Difference(steps, session, seen[at : at + 3], also[at : at + 3])
        return None

    def shrink(self, found: Difference) -> Difference:
        """Leave out one operation after another as long as the servers still differ."""
        single: list[Step] = []
        for step in found.steps:
            single += [Step("ask", step.session, [a]) for a in step.details] if step.kind == "ask" else [step]
        found = self._compare_anew(single) or found
        size = max(1, len(found.steps) // 2)
        while size:
            at = 0
            while at < len(found.steps):
                smaller = self._compare_anew([*found.steps[:at], *found.steps[at + size :]])
                found, at = (smaller, at) if smaller is not None else (found, at + size)
            size //= 2
        return found

    def _compare_anew(self, steps: Sequence[Step]) -> Difference | None:
        """Compare with new sessions, below another root."""
        for side in self._sides:
            for client in side.clients:
                client.drop()
        self._sides = ServerUnderTest(self._connects[0]), ServerUnderTest(self._connects[1])
        return self.differ(steps)


def steps_as_text(steps: Sequence[Step]) -> str:
    """The steps as text: the session, and what it does."""
    lines = []
    for kind, session, details in steps:
        if kind == "ask":
            details = [f"{Opcode(a.opcode).name} {a.body('')[:80]!r}" for a in details]
        lines.append(f"s{session} {kind} {details if details is not None else ''}")
    return "\n".join(lines)


def sequence_of_seed(number: int) -> list[Step]:
    """The sequence of this number: 50 to 200 operations."""
    return SequenceGenerator(Rng(f"sequence {number}")).sequence(50, 200)
