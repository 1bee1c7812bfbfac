"""A deterministic simulator of the destination: processes, partners, one store and one clock, every step ordered by a
seed.

What runs is the product: its verbs, its group commit on a real SQLite file, its dispatcher, its watch. Replaced is
what the machine would do: threads are tasks that one scheduler runs (``tasks``), a process is an object that can be
killed between any two steps (``process``), the lock files and wake-up sockets of ``wsrm_mq.store.instances`` are a set
of names and a mailbox, and time passes when a step says so. ``world`` has the steps and ``oracle`` what must hold
whatever their order. ``make simulate SEED= SCHEDULES=`` runs it.
"""
