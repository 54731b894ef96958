"""Floor 7: real clusters in tests: a `Cluster`, and a pytest plugin. May import `cli/admin` and `explain`."""
