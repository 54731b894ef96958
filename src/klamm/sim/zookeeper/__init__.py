"""A model of ZooKeeper: servers that speak its wire protocol, on a simulated network or on real ports."""
