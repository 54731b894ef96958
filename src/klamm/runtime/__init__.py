"""Floor 1: the door outside; time, network, disk, randomness and processes enter here only."""
