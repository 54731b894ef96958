"""What `klamm reassign` does."""
