"""Floor 2, above `net/`: everything that asks a Kafka broker something does it through here."""
