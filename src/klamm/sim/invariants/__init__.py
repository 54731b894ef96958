"""The invariants of the controller tier, checked at every event or at rest. `table.py` numbers them."""
