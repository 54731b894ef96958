"""Floor 2: segments, indexes, recovery."""
