"""Asking any Kafka-compatible cluster, over klamm's own wire: what the operator's commands stand on."""
