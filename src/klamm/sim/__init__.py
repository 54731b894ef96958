"""The simulated world: the code of production on virtual time, network, disk and ZooKeeper, from one seed."""
