"""What must hold, numbered: after every event, and once all is well again. The table is in `table.py`."""
