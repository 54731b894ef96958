"""Scripts of group members, producers and an operator, played with klamm's coordinators and Apache Kafka 3.9.1's.

    python -m tests.differential.coordinators.judge [--scripts 500] [--seed 1] [--kinds klamm mixed] [--show 7]

Answers and what the topics contain must be equal, but for the differences of `known_differences.py`. A script that
differs is played once more with both, slowly: what differs in one of two runs is told as unsteady.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.differential.coordinators import recordings
from tests.differential.coordinators.comparison import compare
from tests.differential.coordinators.generator import draw
from tests.differential.coordinators.grounds import APACHE, KLAMM, MIXED, SLOTS, TwoBrokers, ground, name_in_slot
from tests.differential.coordinators.names import OWN, PARTITIONS, Place
from tests.differential.coordinators.player import Player
from tests.differential.coordinators.recordings import Recording
from tests.differential.coordinators.script import KILL, NAMES, STOP, Script
from tests.support import apache_kafka

QUIET_S: Final = 0.4
SLOWER_S: Final = 1.6
"""How much longer a step waits in a script that is played again, or that restarts the brokers."""
MAX_REPEATED: Final = 60
WARM_UP: Final = 40
"""Scripts that are played first and not looked at: a Java process is slow at first."""
WARM_UP_QUIET_S: Final = 0.1
_PROGRESS_S: Final = 10.0

Played = dict[int, list[str]]
"""Transcript by seed."""
Report = Callable[[str], None]


class Meeting:
    """Lets one act once all have come, and all go on when it has."""

    def __init__(self, count: int, act: Callable[[], Awaitable[None]]) -> None:
        self._missing = count
        self._act = act
        self._is_over = asyncio.Event()

    async def arrive(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            await self._act()
            self._is_over.set()
        await self._is_over.wait()


class Stage:
    """Plays scripts on a running cluster; each has partitions of `data` for itself."""

    def __init__(self, running: TwoBrokers, quiet_s: float, report: Report) -> None:
        self._running = running
        self._quiet_s = quiet_s
        self._report = report
        self._played = 0

    async def play(self, scripts: Sequence[Script], quiet_s: float | None = None) -> Played:
        """Play the scripts side by side, in each slot one after another; then those with restarts, and those alone."""
        played: Played = {}
        telling = asyncio.create_task(self._tell(played, len(scripts)))
        try:
            for restart in (None, STOP, KILL):
                chosen = [script for script in scripts if script.restart == restart and not script.is_alone]
                slower_s = SLOWER_S if restart else 0.0  # a Java process is slow at first
                await self._play_together(chosen, restart, (quiet_s or self._quiet_s) + slower_s, played)
            for script in scripts:
                if script.is_alone:
                    await self._play_together([script], None, quiet_s or self._quiet_s, played)
        finally:
            telling.cancel()
        return played

    async def _play_together(
        self, scripts: Sequence[Script], restart: str | None, quiet_s: float, played: Played
    ) -> None:
        """Scripts that restart the brokers must have slots of their own: they wait for each other."""
        first, self._played = self._played, self._played + len(scripts)
        slots = [slot_of(script) for script in scripts]
        assert restart is None or len(set(slots)) == len(slots), "two scripts in a slot would wait for each other"
        meeting = Meeting(len(scripts), partial(self._running.restart, str(restart)))

        async def play_in(slot: int) -> None:
            for number, script in enumerate(scripts, first):
                if slot_of(script) == slot:
                    player = Player(self._running, script, place_of(slot, number), quiet_s, meeting.arrive)
                    try:
                        played[script.seed] = await player.play()
                    except Exception as error:
                        error.add_note("\n".join([f"in the script of seed {script.seed}:", *player.lines]))
                        raise

        async with asyncio.TaskGroup() as tasks:
            for slot in set(slots):
                tasks.create_task(play_in(slot))

    async def _tell(self, played: Played, count: int) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_S)
            self._report(f"{len(played)} of {count} scripts")


def scripts_from(seed: int, count: int, restart: str | None) -> list[Script]:
    """So many scripts. Of a longer list, the last of each slot restart the brokers: by SIGTERM, and by SIGKILL.

    With `restart` all of them do.
    """
    in_slots = SLOTS - 1
    if restart is not None:
        return [draw(seed + number, restart) for number in range(min(count, in_slots))]
    restarts = [*[STOP] * in_slots, *[KILL] * in_slots] if count >= 4 * in_slots else []
    hows = [*[None] * (count - len(restarts)), *restarts]
    return [draw(seed + number, how) for number, how in enumerate(hows)]


def slot_of(script: Script) -> int:
    """The slot in which a script is played; none gets slot 0, to which the empty group id belongs."""
    return 1 + script.seed % (SLOTS - 1)


def place_of(slot: int, number: int) -> Place:
    names = {name: name_in_slot(f"{number}{name}", slot) for name in NAMES}
    return Place(slot, number * PARTITIONS, {**names, OWN: f"{number}{OWN}"})


class Setting(NamedTuple):
    """A kind of cluster beside Apache Kafka's, and `group.initial.rebalance.delay.ms` of both."""

    kind: str
    delay_ms: int

    def __str__(self) -> str:
        return f"{self.kind}, delay {self.delay_ms} ms"

    @property
    def quiet_s(self) -> float:
        """How long a step waits for JoinGroup and SyncGroup: longer than the delay, which a second member prolongs."""
        return QUIET_S + 2 * self.delay_ms / 1000

    def can_play(self, script: Script) -> bool:
        """With a delay, steps take so long that timers would expire before the script waits for them."""
        return self.delay_ms == 0 or all(step.verb != "wait" for step in script.steps)


@dataclass(slots=True)
class Verdict:
    differences: list[str] = field(default_factory=list)
    """Without an explanation, each with its seed."""
    unsteady: list[str] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    played: dict[str, Played] = field(default_factory=dict)
    """By kind of cluster."""

    def agreed(self, scripts: Sequence[Script]) -> list[Script]:
        """The scripts that had the same transcript on both clusters."""
        theirs, ours = self.played.values()
        return [script for script in scripts if theirs[script.seed] == ours[script.seed]]


async def judge(directory: Path, scripts: Sequence[Script], setting: Setting, report: Report) -> Verdict:
    """Play the scripts with Apache Kafka and on another kind of cluster; again what differs."""
    count = len(scripts) + WARM_UP + MAX_REPEATED
    async with (
        ground(APACHE, directory / "apache", setting.delay_ms, count) as apache,
        ground(setting.kind, directory / "other", setting.delay_ms, count) as other,
    ):
        clusters = {APACHE: apache, setting.kind: other}
        stages = [Stage(running, setting.quiet_s, partial(_tell, report, kind)) for kind, running in clusters.items()]
        warm_up = [draw(-number) for number in range(1, WARM_UP + 1)]
        for stage in stages:
            await stage.play(warm_up, WARM_UP_QUIET_S)
        theirs, ours = [await stage.play(scripts) for stage in stages]
        verdict = Verdict(played={APACHE: theirs, setting.kind: ours})
        found = {s.seed: compare(ours[s.seed], theirs[s.seed]) for s in scripts}
        for each in found.values():
            verdict.known.update(each.known)
        differing = [s for s in scripts if found[s.seed].difference is not None]
        again = differing[:MAX_REPEATED]
        verdict.differences += [
            f"seed {s.seed}, {setting}: {found[s.seed].difference}" for s in differing[MAX_REPEATED:]
        ]
        if again:
            report(f"{len(again)} scripts differ, and are played again")
        their_second, our_second = [await stage.play(again, setting.quiet_s + SLOWER_S) for stage in stages]
        for seed in (script.seed for script in again):
            second = compare(our_second[seed], their_second[seed]).difference
            kept = verdict.unsteady if second is None else verdict.differences
            kept.append(f"seed {seed}, {setting}: {second or found[seed].difference}")
    return verdict


def _tell(report: Report, kind: str, text: str) -> None:
    report(f"{kind}: {text}")


def _save(directory: Path, setting: Setting, verdict: Verdict) -> None:
    """Write every transcript to a file: SEED-DELAY.KIND."""
    directory.mkdir(parents=True, exist_ok=True)
    for kind, played in verdict.played.items():
        for seed, lines in played.items():
            (directory / f"{seed}-{setting.delay_ms}.{kind}").write_text("\n".join([*lines, ""]))


def _record(count: int, scripts: Sequence[Script], verdict: Verdict) -> None:
    """Keep so many quick scripts, half of them with moves, and what Apache Kafka answered."""
    verbs = {script.seed: {step.verb for step in script.steps} for script in verdict.agreed(scripts)}
    quick = [s for s in verdict.agreed(scripts) if not {"wait", "restart", "delete_topic"} & verbs[s.seed]]
    moved = [script for script in quick if "move" in verbs[script.seed]][: count // 2]
    others = [script for script in quick if "move" not in verbs[script.seed]]
    fitting = sorted([*moved, *others[: count - len(moved)]], key=lambda script: script.seed)
    recordings.save([Recording(s, tuple(verdict.played[APACHE][s.seed])) for s in fitting])
    print(f"{len(fitting)} scripts are kept in {recordings.PATH}")


def main() -> int:
    """Judge, and print what was found; the exit status tells of unexplained differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", type=int, default=500, help="how many (default: 500)")
    parser.add_argument("--seed", type=int, default=1, help="of the first one")
    parser.add_argument(
        "--kinds", nargs="+", choices=(KLAMM, MIXED), default=[KLAMM, MIXED], help="beside Apache Kafka"
    )
    parser.add_argument("--delays", nargs="+", type=int, default=[0], help="group.initial.rebalance.delay.ms")
    parser.add_argument("--restart", choices=(STOP, KILL), help="let every script restart the brokers, at most 39")
    parser.add_argument("--save", type=Path, help="a directory for the transcripts")
    parser.add_argument("--record", type=int, default=0, help="keep so many scripts on which both agree")
    options = parser.parse_args()
    if (why := apache_kafka.why_missing()) is not None:
        print(why)
        return 2
    scripts = scripts_from(options.seed, options.scripts, options.restart)
    total, count = Verdict(), 0
    for setting in (Setting(kind, delay_ms) for kind in options.kinds for delay_ms in options.delays):
        begin = time.monotonic()
        played = [s for s in scripts if setting.can_play(s)]
        with tempfile.TemporaryDirectory(prefix="klamm-coordinators-") as name:
            verdict = asyncio.run(judge(Path(name), played, setting, lambda text: print(text, flush=True)))
        print(f"{setting}: {len(played)} scripts in {time.monotonic() - begin:.0f} s", flush=True)
        total.differences += verdict.differences
        total.unsteady += verdict.unsteady
        total.known.update(verdict.known)
        if options.save:
            _save(options.save, setting, verdict)
        if options.record:
            _record(options.record, played, verdict)
        count += len(played)
    _print(total, count)
    return 1 if total.differences else 0


def _print(verdict: Verdict, count: int) -> None:
    for reason, times in verdict.known.most_common():
        print(f"known, {times} times: {reason}")
    for text in verdict.unsteady:
        print(f"unsteady: {text}")
    for text in verdict.differences:
        print(f"unexplained: {text}")
    print(
        f"{count} scripts played, {len(verdict.unsteady)} unsteady, {len(verdict.differences)} unexplained differences"
    )


if __name__ == "__main__":
    sys.exit(main())
