"""Mutants: small changes of klamm's sources, made one at a time, that the tests have to notice."""
