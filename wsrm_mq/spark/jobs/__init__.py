"""Jobs over many stores at once. A job is a module of functions from tables to tables, without I/O.

A function takes ``DataFrame``\\ s with columns of ``export.schema`` and answers ``DataFrame``\\ s; it reads, writes,
collects and caches nothing, and needs no Python on the executors. So it runs in any session, on whatever was read, and
a test holds it against a few lines of plain Python. ``cli.pipeline`` is what reads, runs, writes and tells.
"""
