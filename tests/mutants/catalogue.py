"""The mutants as values, read from ``mutants.toml`` and checked against the code they change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from ..acceptance.tables import INVARIANTS, project_tables


class CatalogueError(Exception):
    """Mutants that cannot be applied as written; the message has a line for each."""


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault: ``find``, which stands in ``file`` exactly once, becomes ``replace``."""

    name: str
    file: str
    """Path from the root of the project."""
    find: str
    replace: str
    id: str = ""
    """The acceptance row or invariant that the fault breaks; a test that carries it must fail. Empty where no table has
    the promise: then ``tests`` has to name the tests, one of which must fail."""
    tests: list[str] = []
    """Where to look for that test: files or node ids. Empty: all tests that carry ``id``."""
    timeout: float = 60.0
    """Seconds for those tests."""
    hang: bool = False
    """The fault may show as a test that does not end."""

    def mutated(self, root: Path) -> str:
        """The text of ``file`` with the fault in it."""
        return (root / self.file).read_text(encoding="utf-8").replace(self.find, self.replace)

    def problems(self, root: Path) -> Iterator[str]:
        if self.id and self.id not in project_tables().rows and self.id not in INVARIANTS:
            yield f"{self.id} is in no table"
        if not self.id and not (self.tests and all("::" in test for test in self.tests)):
            yield "without an id it has to name its tests"
        if self.find == self.replace:
            yield "replace is the same as find"
        try:
            found = (root / self.file).read_text(encoding="utf-8").count(self.find) if self.find else 0
        except OSError as error:
            yield f"{self.file}: {error.strerror}"
            return
        if found != 1:
            yield f"find stands in {self.file} {found} times instead of once"
        elif self.file.endswith(".py"):
            try:
                compile(self.mutated(root), self.file, "exec")
            except SyntaxError as error:
                yield f"{self.file} is no Python any more: {error.msg}, line {error.lineno}"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    mutant: list[Mutant] = []


def load(path: Path, root: Path, only: Sequence[str] = ()) -> list[Mutant]:
    """The mutants of ``path`` (those named ``only``, if any), each applicable to the code under ``root``.

    :raises CatalogueError: for the file, a name or a mutant that is wrong.
    """
    try:
        mutants = msgspec.toml.decode(path.read_bytes(), type=_File).mutant
    except (OSError, msgspec.MsgspecError) as wrong:
        raise CatalogueError(f"{path.name}: {wrong}") from wrong
    names = Counter(mutant.name for mutant in mutants)
    problems = [f"{name}: named {n} times" for name, n in names.items() if n > 1]
    problems += [f"{name}: no mutant has this name" for name in only if name not in names]
    chosen = [mutant for mutant in mutants if not only or mutant.name in only]
    problems += [f"{mutant.name}: {problem}" for mutant in chosen for problem in mutant.problems(root)]
    if problems:
        raise CatalogueError("\n".join(problems))
    return chosen
