"""Bugs injected on purpose: guards removed one by one (`table`), and mistakes in fresh clones (`clones`)."""
