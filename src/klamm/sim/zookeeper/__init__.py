"""ZooKeeper as a model: a server that speaks its wire protocol, in simulation or on a real port."""
