"""Floor 1: the only access to time, network, disk, randomness and processes."""
