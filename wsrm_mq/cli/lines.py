"""Proposals written as lines for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from wsrm_mq.acts import Act, Kind, Step


def line_of(step: Step) -> str:
    """A proposal as a line that can be typed as it is printed; words in capitals stand for words of the operator's
    own."""
    command = step.command
    words = [word for word in ("wsrm-mq", command.subject, command.name) if word]
    words += map(_quoted, step.which)
    options = list[str]()
    for name, value in step.arguments.items():
        for word in _words(step, name, value):
            (options if word.startswith("-") or options else words).append(_quoted(word))
    words += [*command.asks, *options]
    if command.takes_reason and "dry_run" not in step.arguments:
        words += ["--reason", "TEXT"]
    return " ".join(words)


def _words(step: Step, name: str, value: Any) -> Iterator[str]:
    """An argument as an option with its value, or where it has no option as the value alone."""
    known = {one.name: one for one in step.command.arguments} if isinstance(step.command, Act) else {}
    argument = known.get(name)
    if argument is not None and not argument.is_named:
        yield str(value)
    elif argument is not None and argument.kind is Kind.FLAG:
        yield from (f"--{choice.word}" for choice in argument.choices if choice.value == value)
    else:
        yield f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
        if value is not True:
            yield str(value)


def _quoted(word: str) -> str:
    """A word as a shell takes it; control characters, which no terminal is shown, as bash and zsh read them."""
    return shlex.quote(word) if word.isprintable() else f"$'{''.join(map(_spelled, word))}'"


def _spelled(one: str) -> str:
    if one in "\\'":
        return f"\\{one}"
    return one if one.isprintable() else f"\\U{ord(one):08x}"
