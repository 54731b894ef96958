"""Floor 1: Kafka's messages and record batches as bytes."""
