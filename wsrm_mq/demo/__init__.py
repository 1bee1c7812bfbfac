"""The demo of ``wsrm-mq demo``: a service, a partner on a bad line, and a kill -9 in the middle.

``service`` is the wrapped service, served by ``wsrm-mq serve`` in a process of its own (``server``). ``source`` is the
partner: it loses, repeats and shuffles its messages. ``sight`` reads the service's database and our store, ``run`` runs
the demo, ``screen`` shows it.
"""

PAUSE = 0.01
"""Seconds that the service's operation goes on after its commit: in them its effect is done and its message is
not settled, which is when a crash is worst."""
