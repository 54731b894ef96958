"""Spark registers the `DefaultSource` of each top-level package `pyspark_*` by itself: `format("klamm")` just works."""

from klamm.spark.source import KlammSource as DefaultSource

__all__ = ["DefaultSource"]
