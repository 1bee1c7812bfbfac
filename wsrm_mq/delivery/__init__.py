"""Delivery: stored messages are handed to the application, or sent, in order, and their outcomes are recorded."""
