"""Floor 0: ids, LeaderAndIsr, assignments, errors."""
