"""The protocol, pure: what a sequence is at either end and how it changes, as values and tables. No I/O, no clock."""
