"""A run as data: drawn from a seed, written as text, and shrunk."""
