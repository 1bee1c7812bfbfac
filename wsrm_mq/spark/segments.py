"""Segments of Parquet, which Spark reads by itself: its own reader prunes columns and groups of rows, in the JVM."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from wsrm_mq.errors import ConfigurationError
from wsrm_mq.export.manifest import Manifest, load
from wsrm_mq.export.reading import opened, origin
from wsrm_mq.export.segments import files_of
from wsrm_mq.spark.options import Options

PATTERN: Final = re.compile(r"[*?\[\]{}\\]")
"""What Spark takes for a pattern in the name of a file."""


def divided(options: Options) -> tuple[list[str], tuple[str, ...]]:
    """The segments that Spark can read by itself, and the paths that it cannot. Raises ``ConfigurationError`` where two
    paths are one store, ``ExportError`` and ``StoreError`` where one cannot be read."""
    manifests = {path: load(Path(path)) for path in options.paths if Path(path).is_dir()}
    files: list[str] = []
    others: list[str] = []
    for path in options.paths:
        manifest = manifests.get(path)
        found = _files(path, manifest, options) if manifest is not None else []
        files += found
        others += [] if found else [path]
    if files and not options.copies:
        check_once((path, _store(path, manifests)) for path in options.paths)
    return files, tuple(others)


def _files(path: str, manifest: Manifest, options: Options) -> list[str]:
    if manifest.encoding != "parquet" or PATTERN.search(path):
        return []
    return [str(file) for file in files_of(Path(path), manifest, options.table.name, options.columns, options.keys)]


def _store(path: str, manifests: dict[str, Manifest]) -> str:
    if path in manifests:
        return manifests[path].store
    with opened(Path(path)) as db:
        return origin(db, None).store


def check_once(found: Iterable[tuple[str, str]]) -> None:
    """``found``: paths, and the identities of their stores. Raises ``ConfigurationError`` where two are one."""
    seen: dict[str, str] = {}
    for path, store in found:
        if store in seen:
            raise ConfigurationError(
                f"{seen[store]} and {path} are of one store ({store}), as a copy and its original are. Name one of "
                "them, or read both with the option copies=true (`--copies`)."
            )
        seen[store] = path
