"""Deliberate protocol faults, and the check that the tests notice each of them."""
