"""`make prove`: every generated test in full, one after another, with progress and durations.

`make test` draws a small sample of each. The output of each step is in `.prove/NAME.log`. All steps run; the exit
status is 1 if one fails.
"""

import sys
from functools import partial
from pathlib import Path

from tests.support.steps import Step, exit_with, run_chosen

DIRECTORY = Path(".prove")


def make(target: str, *variables: str) -> tuple[str, ...]:
    return ("make", "--no-print-directory", target, *variables)


PROPERTIES = (
    sys.executable,
    "-m",
    "pytest",
    "tests/unit",
    "--hypothesis-profile",
    "prove",
    "--every-crash",
    "--timeout",
    "100000",
)
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
        "rolling_replacement",
        "spark_kills",
        "spark_package",
        "pipelines",
        "pipeline_secrets",
        "declarative_pipelines",
        "streams",
        "connect",
        "truncated_logs",
    )
)
CLIENT_ROUNDS = (sys.executable, "-m", "pytest", *CLIENTS, "--client-rounds", "12", "--timeout", "100000")
TOOLS = (sys.executable, "-m", "pytest", "tests/clients/test_client_tools.py", "--brokers", "apache")
REGRESSIONS = (
    sys.executable, "-m", "pytest", "tests/simulation/test_schedules.py",
    "tests/simulation/test_cluster_tier_mutants.py", "--all-regressions",
)  # fmt: skip
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
    Step("judge-compaction", make("judge-compaction"), "1,000 drawn logs are compacted as by Apache Kafka's cleaner"),
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
        "mixed-replicas",
        make("mixed-replicas"),
        "the same while klamm and Apache Kafka replicate to each other; their replicas are equal",
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
    Step(
        "rolling-replacement",
        make("rolling-replacement"),
        "klamm replaces Apache Kafka's brokers on their log directories and is replaced by them; nothing is lost",
    ),
)

if __name__ == "__main__":
    exit_with(partial(run_chosen, __doc__, STEPS, DIRECTORY))
