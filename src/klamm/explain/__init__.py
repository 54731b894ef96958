"""Floor 6: explain from the journal and ZooKeeper what happened in a cluster, and why."""
