"""The hands: read, decide, write, apply, send."""
