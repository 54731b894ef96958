"""The faults that the simulation injects, by subject; `table` lists all. To add one: docs/simulation-howto.md."""
