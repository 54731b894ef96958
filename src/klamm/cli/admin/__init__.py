"""What commands ask of a cluster: topics, configs, reassignments, elections, brokers, the controller, znodes."""
