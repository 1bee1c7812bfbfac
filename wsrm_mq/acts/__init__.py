"""The registry of acts: what an operator may do, each declared once, and what a proposal may name beside.

The commands of the command line are made from it, ``explain`` and ``status`` propose from it, and an act says enough to
draw a button: the name, the arguments with their types, the words to confirm. ``replay.acts`` does acts to all that
fit a query.
"""

from typing import Final

from wsrm_mq.acts import messages, sequences
from wsrm_mq.acts.act import Act, Argument, Command, Kind, Step

__all__ = ["ACTS", "Act", "Argument", "Command", "Kind", "Step"]

ACTS: Final = (*sequences.ACTS, *messages.ACTS)
"""All acts."""
