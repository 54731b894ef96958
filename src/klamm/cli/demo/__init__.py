"""`make demo`: real rows through a cluster that is interrupted twice, read back by Spark, and counted."""
