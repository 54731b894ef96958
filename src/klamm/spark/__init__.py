"""Floor 6: the Spark source."""
