"""The demo of ``wsrm-mq demo``: a service, a partner on a bad line, and a kill -9 in the middle.

``service`` is the wrapped service, served by ``wsrm-mq serve`` in a process of its own. ``run`` has that process, the
partner, which loses, repeats and shuffles its messages, and the screen.
"""

PAUSE = 0.01
"""Seconds that the service's operation goes on after its commit: in them its effect is done and its message is
not settled, which is when a crash is worst."""
