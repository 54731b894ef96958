"""Transactions of producers: who may write with a transactional id, and which partitions commit or abort together."""
