"""Cases of `benchmarks.stalls` that need much data, many partitions or many files."""
