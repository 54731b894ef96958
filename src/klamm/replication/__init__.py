"""Floor 3: partitions, ISR, fetchers, purgatories."""
