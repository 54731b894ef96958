"""Reads log directories without a broker: klamm's and Apache Kafka's, also while their broker writes to them.

Files vanish, are renamed and grow meanwhile. A file that is open stays readable; a name is looked up again.
"""
