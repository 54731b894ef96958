"""The scripts: worked traces of leader and epoch arithmetic, and the cases of Kafka's own controller tests, as facts.

One module for each subject; every module here is found by itself. A state is written leader / ISR / leader epoch /
partition epoch. Names of facts: ControllerIntegrationTest, PartitionStateMachineTest, ReplicaStateMachineTest,
PartitionLeaderElectionAlgorithmsTest, KafkaControllerTest (3.9).
"""

from importlib import import_module
from pkgutil import iter_modules

from tests.differential.script import SCRIPTS as SCRIPTS

for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
