"""The acts of an operator on messages and on sequences, on one or on all that fit a query, and the plans by which
messages are delivered again.

``make_plan`` freezes a plan, ``PlanFile`` reads it, ``run_plan`` runs it, ``cancel_plan`` ends it. The command line
calls these functions. Times are ms since the epoch. A message is named by its position in the store, a sequence by its
identifier.
"""

from wsrm_mq.queue.plans import Withdrawn
from wsrm_mq.replay.acts import (
    Acted,
    Done,
    Refused,
    close,
    confirm,
    discard,
    force,
    hold,
    note,
    redrive,
    restore,
    resume,
    retry,
    skip,
    terminate,
    which_messages,
    which_sequences,
)
from wsrm_mq.replay.plan import KEY_HEADER, Header, LeftOut, Line, PlanFile, document
from wsrm_mq.replay.planning import Wishes, make_plan
from wsrm_mq.replay.run import Progress, cancel_plan, check_address, check_plan, run_plan, to_address, to_application

__all__ = [
    "KEY_HEADER",
    "Acted",
    "Done",
    "Header",
    "LeftOut",
    "Line",
    "PlanFile",
    "Progress",
    "Refused",
    "Wishes",
    "Withdrawn",
    "cancel_plan",
    "check_address",
    "check_plan",
    "close",
    "confirm",
    "discard",
    "document",
    "force",
    "hold",
    "make_plan",
    "note",
    "redrive",
    "restore",
    "resume",
    "retry",
    "run_plan",
    "skip",
    "terminate",
    "to_address",
    "to_application",
    "which_messages",
    "which_sequences",
]
