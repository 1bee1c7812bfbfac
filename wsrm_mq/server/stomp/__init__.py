"""STOMP 1.1 and 1.2, for consumers and producers in every language."""
