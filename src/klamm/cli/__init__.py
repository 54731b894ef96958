"""Floor 7: commands."""
