"""`make demo`: flights through a cluster that is interrupted twice, into a table that a pipeline on Spark writes."""
