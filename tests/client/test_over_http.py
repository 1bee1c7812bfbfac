"""The tests of the local node are run over HTTP, through the same fixtures: ``where`` is a server here. ``conftest``
collects them, those that carry mark.timed among them."""
