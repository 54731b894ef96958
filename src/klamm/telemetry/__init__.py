"""Floor 1: logs, metrics, and the journal of events and their causes."""
