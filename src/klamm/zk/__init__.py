"""Floor 2: the ZooKeeper session, Kafka's znodes, the store on top of them."""
