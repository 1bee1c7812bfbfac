"""A deterministic simulator of the destination and of the queue server: processes, partners, producers and consumers,
subscribers, an operator, one store and one clock, every step ordered by a seed.

What runs is the product: its verbs, its group commit on a real SQLite file, its store, writer, pools, dispatcher, watch
and janitor (``process``). What a machine has is not: threads are tasks that one scheduler runs (``tasks``), time passes
when a step says so, and who lives and whose doorbell rings comes in through ``store.port.Instances`` (``machine``). A
process can be killed between any two steps, and in its commit.

``world`` has the steps, ``partner`` and ``acts`` what a source and an operator do, ``consumers``, ``topics`` and
``transactions`` what the programs of queues do, which ``queues`` puts together; ``rest`` the end of a schedule,
``oracle`` what must hold whatever the order; ``run`` runs schedules by number and cuts down one that fails.
``make simulate SEED= SCHEDULES=`` runs it.
"""
