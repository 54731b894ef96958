"""`make prove`: every generated test in full, one after another, with progress and durations.

`make test` draws a small sample of each. The output of each step is in `.prove/NAME.log`. All steps run; the exit
status is 1 if one fails.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

DIRECTORY = Path(".prove")
POLL_S = 0.5
PROGRESS_S = 60


class Step(NamedTuple):
    name: str
    command: tuple[str, ...]
    shows: str


def make(target: str, *variables: str) -> tuple[str, ...]:
    return ("make", "--no-print-directory", target, *variables)


PROPERTIES = (sys.executable, "-m", "pytest", "tests/unit", "--hypothesis-profile", "prove", "--timeout", "100000")
DAMAGE = (
    sys.executable, "-m", "pytest", "tests/unit/log/test_damaged_files.py", "--damage-cases", "10000",
    "--timeout", "100000",
)  # fmt: skip
MALFORMED_FRAMES = (sys.executable, "-m", "tests.frame_fuzzer.run")
CLIENTS = tuple(
    f"tests/clients/test_{name}.py"
    for name in (
        "groups_of_other_clients",
        "kcat",
        "transactional_copies",
        "produce_consume",
        "spark_kills",
        "pipelines",
        "streams",
        "connect",
    )
)
CLIENT_ROUNDS = (sys.executable, "-m", "pytest", *CLIENTS, "--client-rounds", "12", "--timeout", "100000")
TOOLS = (sys.executable, "-m", "pytest", "tests/clients/test_client_tools.py", "--brokers", "apache")
REGRESSIONS = (sys.executable, "-m", "pytest", "tests/simulation/test_schedules.py", "--all-regressions")
CONNECTOR = (sys.executable, "-m", "pytest", "tests/contracts/spark", "--connector-cases")
JOURNALS = (sys.executable, "-m", "pytest", "tests/contracts/insight", "--journals", "1000", "--timeout", "100000")
SCRIPTS = (sys.executable, "-m", "pytest", "tests/differential/test_judge.py", "--all-generated-scripts")
STEPS = (
    Step("properties", PROPERTIES, "property tests with 2,000 examples each, damaged input among them"),
    Step("damage", DAMAGE, "damaged log files, 10,000 cases, cost nothing else that was flushed"),
    Step(
        "malformed-frames",
        MALFORMED_FRAMES,
        "ten million malformed requests are answered or end their connection, and hold nothing",
    ),
    Step("zookeeper-model", make("zookeeper-model"), "the simulated ZooKeeper answers as a real one"),
    Step("client-codecs", make("client-codecs"), "every client reads what every other one wrote, in every codec"),
    Step(
        "clients",
        CLIENT_ROUNDS,
        "Java clients, kafkajs, kcat, Streams and Connect lose nothing while they and brokers are killed",
    ),
    Step("tools-on-kafka", TOOLS, "Kafka's tools still say about Apache Kafka what is recorded"),
    Step("regressions", REGRESSIONS, "no seed that once broke an invariant breaks one again"),
    Step("determinism", make("determinism"), "a seed gives the same run in every process"),
    Step("sim", make("sim", "SECONDS=1800"), "no invariant breaks in half an hour of new seeds"),
    Step(
        "sim-cluster",
        make("sim", "TIER=cluster", "SECONDS=1800"),
        "clusters of whole nodes lose nothing in half an hour of new seeds",
    ),
    Step(
        "determinism-cluster", make("determinism", "TIER=cluster", "SEEDS=100"), "the same for clusters of whole nodes"
    ),
    Step("fault-at-every-step", make("fault-at-every-step"), "operations survive each fault at each of their steps"),
    Step("sim-coverage", make("sim-coverage"), "the simulation reaches the branches of the controller"),
    Step(
        "judge-batches", make("judge-batches"), "produced batches get Apache Kafka's answers, and are stored as there"
    ),
    Step(
        "generated-scripts",
        SCRIPTS,
        "the controller does in 223 generated scripts what Apache Kafka's was recorded to do",
    ),
    Step("insight", JOURNALS, "tables of journals are what ZooKeeper saw in 1,000 simulated clusters"),
    Step("judge-groups", make("judge-groups"), "group members and producers get Apache Kafka's answers from klamm"),
    Step("compare-with-kafka", make("compare-with-kafka", "SCENARIOS=100"), "the controller acts as Apache Kafka's"),
    Step("injected-bugs", make("injected-bugs"), "the simulation finds injected bugs"),
    Step("mutants", make("mutants"), "the simulation notices each removed guard"),
    Step("mutation-score", make("mutation-score"), "the tests notice small changes of the sources"),
    Step("real-faults", make("real-faults"), "real nodes lose no acknowledged record"),
    Step(
        "coordinator-faults",
        make("coordinator-faults", "ROUNDS=10"),
        "transactions and groups lose, double and tear nothing while nodes and clients fail",
    ),
    Step(
        "coordinator-faults-mixed",
        (sys.executable, "-m", "tests.campaign.coordinators", "--rounds", "5", "--mixed"),
        "the same while klamm and Apache Kafka hand the coordinators to each other",
    ),
    Step("spark-connector", CONNECTOR, "klamm reads what Spark's own connector reads, in 200 cases"),
    Step("spark-kills", make("spark-kills"), "a Spark query killed twenty times has each record once"),
    Step(
        "pipeline-kills", make("pipeline-kills"), "a pipeline killed twenty times has each record once, broken ones too"
    ),
    Step("spark-sink-kills", make("spark-sink-kills"), "a Spark query killed twenty times writes each record once"),
    Step("replica-damage", make("replica-damage"), "1,000 flips, cuts and gaps in replicas are found at their offsets"),
    Step("spark-log-dirs", make("spark-log-dirs"), "1,000 generated logs have the same rows in files and by Fetch"),
    Step("mixed-cluster", make("mixed-cluster"), "klamm and Apache Kafka share a cluster"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[s.name for s in STEPS], help="run only these")
    options = parser.parse_args(arguments)
    steps = [s for s in STEPS if not options.only or s.name in options.only]
    DIRECTORY.mkdir(exist_ok=True)
    results = [(step, *run(step, f"[{n:>2}/{len(steps)}]")) for n, step in enumerate(steps, start=1)]
    print("\nstep                  duration  result")
    for step, status, seconds in results:
        print(f"{step.name:<20} {in_minutes(seconds):>9}  {outcome(step, status)}")
    return int(any(status for _, status, _ in results))


def run(step: Step, counter: str) -> tuple[int, float]:
    """Returns the exit status and the duration in seconds."""
    print(f"{counter} {step.name}: {step.shows}", flush=True)
    path, begin = log_path(step), time.monotonic()
    next_report = begin + PROGRESS_S
    with path.open("w") as log, subprocess.Popen(step.command, stdout=log, stderr=subprocess.STDOUT) as process:
        while process.poll() is None:
            time.sleep(POLL_S)
            if time.monotonic() >= next_report:
                next_report += PROGRESS_S
                print(f"        {in_minutes(time.monotonic() - begin):>9}  {last_line(path)}", flush=True)
        seconds = time.monotonic() - begin
        print(f"        {in_minutes(seconds):>9}  {outcome(step, process.returncode)}", flush=True)
        return process.returncode, seconds


def log_path(step: Step) -> Path:
    return DIRECTORY / f"{step.name}.log"


def last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()
    return lines[-1][:90] if lines else ""


def in_minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02} min"


def outcome(step: Step, status: int) -> str:
    return "passed" if status == 0 else f"FAILED (status {status}), see {log_path(step)}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
