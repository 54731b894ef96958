"""Decisions of the controller: functions from facts to a plan, without waiting, I/O or randomness."""
