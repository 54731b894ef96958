"""Floor 6: what is wrong with a cluster, why, and which commands repair it."""
