"""Floor 1: logs, metrics, the journal of what happened and why."""
