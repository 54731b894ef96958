"""What a script can do. Each verb does one thing, waits until the node is at rest, and records the step."""
