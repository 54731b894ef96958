"""`klamm audit`: what is wrong with any ZooKeeper-mode cluster, why, and what mends it. It only reads."""
