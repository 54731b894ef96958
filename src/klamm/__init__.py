"""Klamm: a Kafka cluster in Python whose control plane explains itself."""

__version__ = "0.1.0"
