"""What must hold in a cluster of whole nodes, by subject; `table` numbers it all."""
