"""The invariants of clusters of whole nodes, by subject; `table` numbers them."""
