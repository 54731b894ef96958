"""What happened in a simulated cluster so far: the ground truth of every invariant."""
