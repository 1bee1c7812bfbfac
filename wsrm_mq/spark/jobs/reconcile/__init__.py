"""What became of the traffic of any number of stores: which numbers are missing, what came twice and with which Body,
how long it took, what failed, and which sequences stand still.

``numbers`` is of sequences and their numbers, ``receipts`` of messages that came more than once, ``outcomes`` of what
delivery made of them, ``standing`` of sequences that wait.
"""
