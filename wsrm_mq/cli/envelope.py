"""``wsrm-mq envelope``: what a message on the wire is, and what is wrong with it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from wsrm_mq.cli.output import Exit, Stopped, as_json, prose, write
from wsrm_mq.cli.place import json_option

if TYPE_CHECKING:
    from wsrm_mq.decoding import decode as decoding

_LARGEST: Final = 64 * 1024 * 1024
_MARGIN: Final = 12
_SHOWN: Final = ("content-type", "content-encoding", "transfer-encoding", "content-length", "soapaction")
"""Fields of HTTP that say how the body is to be read. Others may be secret."""


@click.group()
def envelope() -> None:
    """See what a message on the wire is, and what is wrong with it."""


@envelope.command()
@json_option
@click.argument("file", type=click.File("rb"))
def decode(is_json: bool, file: BinaryIO) -> None:
    """Tell what the message in FILE is, and what is wrong with it.

    Told too is what a service behind wsrm-mq does with it. Nothing is sent, and no store is asked.

    FILE holds HTTP as it went over the wire, requests and responses one behind the other, an envelope alone, or a log
    with envelopes in it; - is standard input. HTTP may be chunked, compressed with gzip, and have attachments.

    Status 0: nothing is wrong. 1: something is, or it is no message.

    \b
    Example: wsrm-mq envelope decode request.http
             wsrm-mq envelope decode --json connection.http
    """
    from wsrm_mq.decoding import decode as decoding

    content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise Stopped(f"{file.name} is larger than {_LARGEST} bytes; cut the message out of it.", Exit.FAILED)
    messages = list(decoding.decoded(content))
    if is_json:
        as_json(messages=[_as_values(one) for one in messages])
    else:
        for place, one in enumerate(messages):
            if place:
                write("")
            _tell(one)
    if any(one.problems for one in messages):
        raise click.exceptions.Exit(Exit.FAILED)


def _as_values(told: decoding.Decoded) -> dict[str, Any]:
    return {
        "start": told.raw.start or None,
        "fields": _fields(told),
        "size": told.size,
        "what": told.what,
        **asdict(told.versions),
        "headers": [_block(one) for one in told.blocks],
        "body": _block(told.body) if told.body is not None else None,
        "receiver": told.receiver or None,
        "problems": [
            {"problem": one.text, "line": one.at and one.at.line, "column": one.at and one.at.column}
            for one in told.problems
        ],
    }


def _fields(told: decoding.Decoded) -> dict[str, str]:
    return {name: value for name in _SHOWN if (value := told.raw.get(name)) is not None}


def _block(one: decoding.Block) -> dict[str, Any]:
    return {**asdict(one), "facts": [{"path": path, "value": value} for path, value in one.facts]}


def _tell(told: decoding.Decoded) -> None:
    if told.raw.start:
        _line("http", told.raw.start)
    for name, value in _fields(told).items():
        _line("", f"{name}: {value}")
    _line("message", told.what, "bold")
    if told.versions.soap is not None:
        _line("versions", _versions(told))
    for place, one in enumerate(told.blocks):
        _line("" if place else "headers", _in_words(one))
    if told.body is not None:
        _line("body", _in_words(told.body))
    if told.receiver:
        _line("receiver", told.receiver)
    for place, problem in enumerate(told.problems):
        _line("" if place else "wrong", _with_place(problem), "red")
    if not told.problems:
        _line("wrong", "nothing")


def _line(head: str, text: str, style: str = "") -> None:
    prose(text, head, margin=_MARGIN, style=style)


def _versions(told: decoding.Decoded) -> str:
    found = told.versions
    addressing = f"WS-Addressing {found.addressing}" if found.addressing else "no WS-Addressing"
    rm = {None: "no WS-ReliableMessaging", "1.1": "WS-ReliableMessaging 1.1 (1.2 is the same on the wire)"}
    return f"SOAP {found.soap}, {addressing}, {rm.get(found.rm, f'WS-ReliableMessaging {found.rm}')}"


def _in_words(one: decoding.Block) -> str:
    facts = ", ".join(" ".join(filter(None, fact)) for fact in one.facts)
    mandatory = ", mandatory" if one.must_understand else ""
    namespace = "" if one.facts else f" of {one.namespace or 'no namespace'}"
    return f"{one.name}{mandatory}{namespace}{f': {facts}' if facts else ''}"


def _with_place(problem: decoding.Problem) -> str:
    if problem.at is None:
        return problem.text
    column = f", column {problem.at.column}" if problem.at.column is not None else ""
    return f"Line {problem.at.line}{column} of the envelope: {problem.text}"
