"""Floor 2: connections, server and client."""
