"""Floor 2: the server side of connections."""
