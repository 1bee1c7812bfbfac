"""How an attempt failed, in the few words by which failures are grouped; the error's text tells the rest."""

from __future__ import annotations

from typing import Final, NamedTuple


class Diagnosis(NamedTuple):
    kind: str = ""
    """One of a few words: ``exception``, ``http_error``, ``soap_fault``, ``answered_with_fault``, ``refused``,
    ``unstorable``; ``not_sent`` of what this side sends, ``not_told`` of an end that is not told again,
    ``never_answered`` of what could not be sent for so long that it is given up, ``too_large`` of what its host does
    not read, ``refused_there`` of what a next node will not take, ``not_let_in`` where credentials
    are refused; ``nacked`` by a consumer."""
    code: str | None = None
    """The code of the SOAP fault that the application answered, as it wrote it."""
    exception: str | None = None
    """The type of what was raised, as ``module.name``; one of Python's own goes by its name."""
    place: str | None = None
    """Where in the application that was raised: ``path:line function``."""

    @property
    def columns(self) -> dict[str, str | None]:
        """The columns of the ledger that keep it. A failure without a SOAP fault goes by its kind."""
        return {"fault": self.code or self.kind or None, "exception": self.exception, "place": self.place}


NOT_TOLD: Final = "not_told"
"""The end of a sequence was sent a few times and not taken: the other side is gone, or has forgotten it already."""
NEVER_ANSWERED: Final = "never_answered"
"""Its host has never answered, and left it no room to be tried for a day; or it will never be tried: it cannot be
signed."""
TOO_LARGE: Final = "too_large"
"""Its host does not read a message of this size."""
REFUSED_THERE: Final = "refused_there"
"""The next node will never take it as it is: it is too large there, or cannot be read."""
NOT_LET_IN: Final = "not_let_in"
"""The credentials of this side are refused, in what it says of a sequence: the messages of that are not."""
NACKED: Final = Diagnosis("nacked")
UNKNOWN: Final = Diagnosis()
