"""Floor 6: ZooKeeper and nodes as child processes of this one."""
