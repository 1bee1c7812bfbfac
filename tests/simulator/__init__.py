"""A deterministic simulator of the destination, of the RM Source and of the queue server: processes, partners,
producers and consumers, subscribers, programs that send, operators, stores and one clock, every step ordered by a seed.

What runs is the product: its verbs, its group commit on real SQLite files, its store, writer, pools, dispatcher, watch
and janitor (``process``), and in schedules with a source its ``RMSource``, its middleware and all that they write and
read as bytes (``source``, ``door``). What a machine has is not: threads are tasks that one scheduler runs (``tasks``),
time passes when a step says so, and who lives and whose doorbell rings comes in through ``store.port.Instances``
(``machine``). A process can be killed between any two steps, and in its commit.

``world`` has the steps, ``partner`` and ``acts`` what a source of another make and an operator do, ``sending`` what
programs do that send by ours, over the line of ``wire``; ``consumers``, ``subscribers``, ``topics`` and
``transactions`` what the programs of queues do, which ``queues`` puts together; ``rest`` the end of a schedule,
``oracle``, ``consumers`` and ``calls`` what must hold whatever the order; ``run`` runs schedules by number and cuts
down one that fails. ``make simulate SEED= SCHEDULES=`` runs it.

The invariants of the queue model, and where each is held against what has happened: in a Hypothesis state machine
against a model, and here.

====  ================================================  ===========================================================
I     Hypothesis                                        simulator
====  ================================================  ===========================================================
1     ``queue.test_machine``, ``node.test_machine``     ``consumers``: each position that is given
2     ``queue.test_machine``, ``node.test_machine``     ``consumers``: each look counts each message once
3     ``queue.test_machine``, ``node.test_machine``     ``oracle``: commits of the lost; ``consumers``: each lease
4     ``queue.test_machine``, ``node.test_machine``     ``oracle``, ``consumers``: each delivery and lease; the store's
5     ``queue.test_machine``, ``node.test_machine``     ``oracle``: each delivery; the store's
6     ``queue.test_machine``, ``node.test_machine``     ``oracle``, ``consumers``: each delivery and settlement
7     ``queue.test_machine``, ``source.test_machine``   ``oracle``: each acknowledgement, over crashes
8     ``queue.test_machine``                            ``consumers``: journals; ``transactions``; crashes in a commit
9     ``node.test_machine``                             ``consumers``: each commit, while ``subscribers`` take
10    ``node.test_machine``                             ``consumers``: each look
11    ``queue.test_machine``, ``node.test_machine``     ``oracle``, ``consumers``, ``calls``: the end
12    ``queue.test_machine``, ``node.test_machine``     ``consumers``: each lease
13    ``source.test_machine``                           ``calls``: each commit of a source
15    ``node.test_machine``                             ``consumers``: each lease; the store's
16    ``source.test_machine``                           ``door``: each request, by the clock of the schedule
17    ``node.test_machine``                             ``consumers``: each settlement by a filter
====  ================================================  ===========================================================

"The store's": the questions of ``store.invariants``, asked at the end of each schedule. I14 is of routes.
"""
