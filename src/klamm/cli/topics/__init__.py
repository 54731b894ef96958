"""What `klamm topics` does."""
