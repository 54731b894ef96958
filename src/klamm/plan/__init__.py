"""Floor 6: which replicas to move where, how fast, and how far the moves are."""
