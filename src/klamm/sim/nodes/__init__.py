"""A simulated node: the controller, session and server of production over replicas without records."""
