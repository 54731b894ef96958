"""Event handlers of the controller: they read, decide, write, apply and send."""
