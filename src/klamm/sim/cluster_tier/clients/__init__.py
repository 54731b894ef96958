"""Producers and consumers of the simulation, and what they were told."""
