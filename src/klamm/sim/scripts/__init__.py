"""A run as data: what a seed draws, how it is written down, and how it is made small."""
