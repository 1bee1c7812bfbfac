"""Deliberate protocol faults, and the check that the tests notice each of them.

``make mutants`` copies the project, runs the chosen tests on the true code, where all must pass, and then puts one
fault at a time into a copy of its own: a test that carries the acceptance id the fault breaks must fail there. The
working tree is never changed. One fault alone: ``make mutants ARGS="--only NAME"``; only check and list them:
``ARGS=--list``.

To add a fault:

1. Choose a promise, that is an id of ``tests/acceptance/*.tsv`` or an invariant (I1 … I17), and the line that keeps it.
   A promise that is in no table has no ``id``, and ``tests`` has to name its test.
2. Add a table to ``mutants.toml``, where a message on its way would meet the line. ``find`` is the shortest text that
   stands in ``file`` exactly once; ``replace`` breaks the promise and nothing else: the code still runs, and answers
   as a careless author's would. A fault that only makes everything fail shows nothing. ``name`` says what the faulty
   code does.
3. Name in ``tests`` the fastest test with the ``id`` that notices; left out, all tests with it run. If none notices,
   the suite has a hole: write the test, see it pass on the true code, and only then let the fault in.
4. Run it alone, and look at the test that is named as having killed it: is that the promise you meant to break?

``Mutant`` in ``catalogue.py`` describes every key. When the code changes so that a ``find`` no longer stands there
once, ``make mutants`` and the suite (``test_runner.py``) say which; give that fault its new line, or remove it with its
promise.
"""
