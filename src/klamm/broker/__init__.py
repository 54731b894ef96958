"""Floor 4: a node. `assembly.py` builds it, `handlers/` answers requests."""
