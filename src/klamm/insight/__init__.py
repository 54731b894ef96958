"""The controllers' journals as tables of Spark: timelines, windows without leader, elections, ISR changes, queues."""
