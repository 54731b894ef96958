"""Floor 6: the history of a partition, topic, broker or controller, told from the journal and ZooKeeper."""
