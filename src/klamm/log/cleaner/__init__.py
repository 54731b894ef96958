"""Compaction: each key of a compacted log keeps its last value. Source: LogCleaner.scala, LogCleanerManager.scala.

The event loop chooses a log (`selection`), a process of its own reads and rewrites it (`rewriting`, driven through
`sessions`), and the event loop puts each rewritten segment in the place of those it replaces (`cleaner`).
"""
