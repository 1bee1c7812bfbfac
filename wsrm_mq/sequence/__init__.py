"""The protocol as pure values and tables: the states of a sequence at either end, and their changes. No I/O, no
clock."""
