"""Where a broker is in its life, by Kafka's numbers. Source: BrokerState.java, KafkaServer.scala (3.9)."""

from enum import IntEnum


class BrokerState(IntEnum):
    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7
