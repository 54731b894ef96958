"""What may befall a cluster, by subject; `table` numbers it all. To add one: docs/simulation-howto.md."""
