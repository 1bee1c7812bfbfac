"""A WSGI service without a framework: it writes down exactly what it was given.

Table ``requests``: a row for each call. ``/plain`` takes the message; ``/plain/raises`` raises and
``/plain/unavailable`` answers 503 without a fault until the third attempt; ``/plain/fault`` answers a Receiver fault
of SOAP 1.1 with status 200 until then.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

SCHEMA: Final = """
create table if not exists requests
  (at real not null, path text, sequence text, number integer, attempt integer, redelivery integer,
   content_type text, content_encoding text, soap_action text, principal text, body blob);
"""
FAULT: Final = (
    b'<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><s:Fault>'
    b"<faultcode>s:Server</faultcode><faultstring>not now</faultstring></s:Fault></s:Body></s:Envelope>"
)
THIRD: Final = 3


def plain(database: Path) -> WSGI:
    with sqlite3.connect(database, timeout=10) as db:
        db.executescript(SCHEMA)

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        row = (
            time.time(),
            environ["PATH_INFO"],
            *(
                environ.get(name)
                for name in (
                    "wsrm.sequence_id",
                    "wsrm.message_number",
                    "wsrm.attempt",
                    "wsrm.redelivery",
                    "CONTENT_TYPE",
                    "HTTP_CONTENT_ENCODING",
                    "HTTP_SOAPACTION",
                    "wsrm.principal",
                )
            ),
        )
        with sqlite3.connect(database, timeout=10) as db:
            db.execute("insert into requests values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, body))
        if environ["wsrm.attempt"] < THIRD:
            if environ["PATH_INFO"].endswith("/raises"):
                raise RuntimeError("out of order, as it was told to be")
            if environ["PATH_INFO"].endswith("/unavailable"):
                start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
                return [b"come again"]
            if environ["PATH_INFO"].endswith("/fault"):
                start_response("200 OK", [("Content-Type", "text/xml")])
                return [FAULT]
        start_response("202 Accepted", [])
        return []

    return application
