"""What a script can do: one thing each, then all comes to rest and is written down."""
