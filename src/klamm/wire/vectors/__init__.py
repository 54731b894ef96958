"""Record batches decoded as numpy vectors, without a Python object per record: for Spark and the log cleaner.

Needs numpy, which takes a tenth of a second to import: a node imports this room in its worker processes only.
"""
