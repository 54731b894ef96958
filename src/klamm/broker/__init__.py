"""Floor 4: a node, wired."""
