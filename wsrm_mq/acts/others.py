"""Commands that a proposal may name beside acts: to look at something, or to do more than a transaction."""

from __future__ import annotations

from typing import Final

from wsrm_mq.acts.act import Command

# to look

DOCTOR: Final = Command("", "doctor")
STATUS: Final = Command("", "status")
CONFIGURATION: Final = Command("config", "show")
VERIFY: Final = Command("store", "verify")
CONNECTIONS: Final = Command("connection", "list")
SEQUENCES: Final = Command("sequence", "list")
EXPLAIN: Final = Command("sequence", "explain")
MESSAGES: Final = Command("message", "list")
MESSAGE: Final = Command("message", "show")
BODY: Final = Command("message", "body")
LETTERS: Final = Command("dead-letter", "list")
FAILURES: Final = Command("failure", "list")
FAILURE: Final = Command("failure", "show")
ARCHIVES: Final = Command("archive", "list")
PLANS: Final = Command("replay", "list")
QUEUE: Final = Command("queue", "show")
QUEUES: Final = Command("queue", "list")
PEEK: Final = Command("queue", "peek")
MESSAGE_WHY: Final = Command("message", "explain")
ATTEMPTS: Final = Command("message", "attempts")
LETTER: Final = Command("dead-letter", "show")
AUDIT: Final = Command("audit", "list")
SUBSCRIPTIONS: Final = Command("subscription", "list")
SUBSCRIPTION: Final = Command("subscription", "show")
PLAN: Final = Command("replay", "status")
NODE: Final = Command("node", "show")
ROUTE_TEST: Final = Command("route", "test")
REQUESTS_SHOWN: Final = Command("source", "show")
REQUESTS: Final = Command("source", "explain")

# to do

MAKE_PLAN: Final = Command("replay", "plan", takes_reason=True)
RUN_PLAN: Final = Command("replay", "run")
CANCEL_PLAN: Final = Command("replay", "cancel", takes_reason=True)
PRUNE: Final = Command("store", "prune", takes_reason=True)
ADOPT: Final = Command("store", "adopt", takes_reason=True)
REHEARSE: Final = Command("store", "rehearse")
RENAME: Final = Command("store", "application", takes_reason=True, asks=("NEW",))
DECLARE: Final = Command("queue", "declare")
RESEND: Final = Command("source", "resend", takes_reason=True)
RESUME_SOURCE: Final = Command("source", "resume", takes_reason=True)
TERMINATE_SOURCE: Final = Command("source", "terminate", takes_reason=True)
DROP: Final = Command("subscription", "drop", takes_reason=True)
DELETE: Final = Command("queue", "delete", takes_reason=True)
ARCHIVED: Final = Command("archive", "confirm", asks=("MANIFEST",))
