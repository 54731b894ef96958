"""The head: facts in, plans out; nothing here waits, writes or rolls dice."""
