"""Whether all replicas of a partition have the same records, from log directories or by Fetch from every broker."""
