"""What `klamm produce` and `klamm consume` do: records from lines and to lines, positions, progress."""
