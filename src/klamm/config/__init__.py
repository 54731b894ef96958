"""Floor 1: server.properties and topic configs, one row each."""
