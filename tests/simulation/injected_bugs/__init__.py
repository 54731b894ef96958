"""Bugs injected on purpose: guards taken out one by one (`table`), and mistakes put into fresh clones (`clones`)."""
