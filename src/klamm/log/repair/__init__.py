"""Finds batches that are not what was written, and replaces them by those of another replica."""
