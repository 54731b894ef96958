"""Whole nodes on a simulated network, disk and clock, beside a simulated ZooKeeper, producers and consumers."""
