"""Exports: the content of a store as files for other tools (NDJSON, CSV, Parquet, ZIP), in segments with a manifest.

::

    from pathlib import Path
    from wsrm_mq.export import Asked, export, load

    manifest = export(Path("wsrm.db"), Path("april"), Asked(tables=("messages", "sequences"), encoding="parquet"))
    print(sum(segment.rows for segment in manifest.segments))
"""

from wsrm_mq.export.exporting import Asked, export
from wsrm_mq.export.manifest import Contents, Manifest, Segment, load
from wsrm_mq.export.schema import TABLES, Column, Kind, Table

__all__ = ["TABLES", "Asked", "Column", "Contents", "Kind", "Manifest", "Segment", "Table", "export", "load"]
