"""Floor 2, above `net/`: all requests of this code to Kafka brokers."""
