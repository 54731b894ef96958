"""What an operator sees of a cluster in trouble: transcripts of simulated runs, kept as text."""
