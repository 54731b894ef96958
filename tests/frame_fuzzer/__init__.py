"""Malformed request frames against a whole node: `python -m tests.frame_fuzzer.run`."""
