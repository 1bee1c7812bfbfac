"""A pass over a fault: the path of open elements, and the text of the innermost one."""

from __future__ import annotations

from xml.parsers import expat

from wsrm_mq.envelope.outline import split_name
from wsrm_mq.envelope.text import WHITE_SPACE


class FaultPass:
    """``path`` has the expanded names of the elements that are open, ``started`` and ``ended`` are called while the one
    they are about is its last."""

    def __init__(self, parser: expat.XMLParserType) -> None:
        self.path: list[str] = []
        self._scope: list[tuple[str, str]] = []
        self._text: list[str] = []
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append
        parser.StartNamespaceDeclHandler = lambda prefix, uri: self._scope.append((prefix or "", uri or ""))
        parser.EndNamespaceDeclHandler = lambda _: self._scope.pop()

    def started(self) -> None:
        """An element begins."""

    def ended(self) -> None:
        """An element ends."""

    @property
    def local_path(self) -> list[str]:
        return [split_name(name)[1] for name in self.path]

    @property
    def said(self) -> str:
        """The text of the element that ends, behind its last child."""
        return "".join(self._text).strip(WHITE_SPACE)

    @property
    def said_name(self) -> tuple[str | None, str, str]:
        """(namespace, prefix, local name) of the qualified name that it says; the namespace is ``None`` where the
        prefix is not declared."""
        prefix, _, local = self.said.rpartition(":")
        return dict(self._scope).get(prefix), prefix, local

    def _start(self, name: str, _attributes: dict[str, str]) -> None:
        self.path.append(name)
        self._text.clear()
        self.started()

    def _end(self, _name: str) -> None:
        self.ended()
        self.path.pop()
