"""Send malformed frames to a whole node: each gets a response or ends its connection, and nothing is held or lost.

    python -m tests.frame_fuzzer.run [--frames 10000000] [--seed 1] [--seconds N]

Frames are valid requests of every API and version with one to four mutations. A number is a seed: `--seed S --frames N`
sends the same frames in every run. A node gets `FRAMES_OF_A_NODE` of them, `FRAMES_AT_ONCE` over as many connections.
What is found is written to `corpus/`, whose frames every run sends first, and `make test` with a drawn part of the
others: one file has the frame that does harm alone, or else a line for each of those that were sent together.
"""

import argparse
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from tests.frame_fuzzer.frames import malformed_frame, requests, valid_frame
from tests.frame_fuzzer.node import FuzzedNode, Round, with_node

CORPUS: Final = Path(__file__).with_name("corpus")
FRAMES_OF_A_NODE: Final = 50_000
FRAMES_AT_ONCE: Final = 64
MAX_GROWTH_MIB: Final = 512
PROGRESS_S: Final = 10.0
MAX_PROBLEMS: Final = 20


Frames = Sequence[bytes]
"""Frames that are sent together."""


class Fuzzing:
    """Counts outcomes, and keeps the frames with problems."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self.outcomes: Counter[str] = Counter()
        self.longest_s = 0.0
        self.problems: dict[str, Frames] = {}
        """The first frames with each problem."""
        self._report = report

    @property
    def sent(self) -> int:
        return self.outcomes.total()

    def note(self, frames: Frames, done: Round) -> None:
        """Count the outcomes of frames that were sent together."""
        self.longest_s = max(self.longest_s, done.held_s)
        for frame, outcome in zip(frames, done.outcomes, strict=True):
            self.outcomes[outcome.kind] += 1
            self._keep(outcome.problem, [frame])
        self._keep(done.problem, frames)

    def _keep(self, problem: str | None, frames: Frames) -> None:
        """Keep the frames of a new problem."""
        if problem is not None and problem not in self.problems:
            self.problems[problem] = frames
            self._report(f"{problem}: {' '.join(frame.hex()[:2_000] for frame in frames[:4])}")


def corpus() -> list[Frames]:
    """The frames that were found to do harm, in order of their files' names."""
    files = sorted(CORPUS.glob("*.hex"))
    return [[bytes.fromhex(line) for line in path.read_text().splitlines()] for path in files]


def drawn(seed: int, count: int, fuzzed: FuzzedNode) -> Iterator[bytes]:
    """Valid frames of every API and version, then malformed ones, `count` in all."""
    dice = random.Random(seed)
    frames = [
        valid_frame(message, version, dice, fuzzed.topic_id)
        for message in requests()
        for version in range(message.versions.first, message.versions.last + 1)
    ]
    yield from frames[:count]
    for _ in range(count - len(frames)):
        yield malformed_frame(frames, dice)


def send_all(seed: int, frames_of: Callable[[FuzzedNode], Iterable[bytes]], fuzzing: Fuzzing) -> None:
    """Send frames to a node of their own, `FRAMES_AT_ONCE` at a time, until it fails."""

    async def send(fuzzed: FuzzedNode) -> None:
        left = iter(frames_of(fuzzed))
        while not fuzzed.has_failed and (frames := list(islice(left, FRAMES_AT_ONCE))):
            fuzzing.note(frames, await fuzzed.send(frames))

    with_node(seed, send)


def send_only(seed: int, frames: Frames, fuzzing: Fuzzing) -> None:
    """Send just these frames to a node of their own."""
    send_all(seed, lambda fuzzed: frames, fuzzing)


def smallest(seed: int, frames: Frames) -> Frames:
    """One of the frames that is a problem alone, else all of them."""
    for frame in frames if len(frames) > 1 else ():
        alone = Fuzzing(lambda text: None)
        send_only(seed, [frame], alone)
        if alone.problems:
            return [frame]
    return frames


def peak_mib() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fuzz(
    frames: int, seed: int, seconds: float, report: Callable[[str], None], first: Iterable[Frames] | None = None
) -> Fuzzing:
    """Send the `first` frames, by default the corpus, then so many frames, for at most so long."""
    fuzzing = Fuzzing(report)
    for harmful in corpus() if first is None else first:
        send_only(seed, harmful, fuzzing)
    began = reported = time.monotonic()
    before_mib = None
    done = 0
    while done < frames and time.monotonic() - began < seconds and len(fuzzing.problems) < MAX_PROBLEMS:
        count = min(FRAMES_OF_A_NODE, frames - done)
        send_all(seed + done, partial(drawn, seed + done, count), fuzzing)
        done += count
        before_mib = before_mib or peak_mib()
        if peak_mib() - before_mib > MAX_GROWTH_MIB:
            fuzzing.problems[f"memory grew from {before_mib:.0f} to {peak_mib():.0f} MiB"] = ()
            break
        if time.monotonic() - reported > PROGRESS_S:
            reported = time.monotonic()
            report(f"{fuzzing.sent:,} frames, {len(fuzzing.problems)} problems, {peak_mib():.0f} MiB")
    return fuzzing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    fuzzing = fuzz(given.frames, given.seed, given.seconds, lambda text: print(text, flush=True))
    for number, frames in enumerate(fuzzing.problems.values()):
        if frames:
            CORPUS.mkdir(exist_ok=True)
            lines = [frame.hex() for frame in smallest(given.seed, frames)]
            (CORPUS / f"new-{given.seed}-{number}.hex").write_text("\n".join(lines))
    counts = ", ".join(f"{kind} {count:,}" for kind, count in fuzzing.outcomes.most_common())
    print(f"{fuzzing.sent:,} frames: {counts}; loop held for at most {fuzzing.longest_s * 1000:.1f} ms")
    print(f"{len(fuzzing.problems)} problems, {peak_mib():.0f} MiB at most")
    return int(bool(fuzzing.problems))


if __name__ == "__main__":
    sys.exit(main())
