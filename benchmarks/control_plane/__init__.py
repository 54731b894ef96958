"""What measures a controller from outside: a tree of partitions, silent brokers, and a node of either kind."""
