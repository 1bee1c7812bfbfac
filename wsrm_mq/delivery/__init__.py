"""Delivery: what is stored is handed to the application, or sent, in order, and what came of it is recorded."""
