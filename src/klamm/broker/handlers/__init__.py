"""One module per family of APIs. Kafka's error codes are chosen here."""
