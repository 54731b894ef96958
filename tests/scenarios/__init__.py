"""Transcripts of simulated runs: what an operator sees of a cluster with faults."""
