"""What a reconciliation of archived Parquet costs, warm, at two sizes: `make bench-spark`.

The archive is written by Spark, as ``wsrm_mq.export`` lays one out: sequences with losses, late and repeated messages,
dead letters. What is measured is the command, from its manifest to the report.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec
from click.testing import CliRunner

from bench.measure import Spent
from wsrm_mq.cli import program
from wsrm_mq.export.manifest import FORMAT, MANIFEST, Contents, Manifest, Segment
from wsrm_mq.export.schema import TABLES, VERSION, Kind
from wsrm_mq.spark.session import session
from wsrm_mq.store.published import VERSION as READ_VIEWS

__all__ = ["linear"]

SIZES: Final = (1_000_000, 10_000_000)
WARM: Final = 50_000
EACH: Final = 1_000
"""Messages of a sequence."""
FILES: Final = 8
_SQL: Final = {Kind.TEXT: "string", Kind.INTEGER: "bigint", Kind.BOOLEAN: "boolean", Kind.TIME: "timestamp"}

_BEGAN: Final = "timestamp_millis(1767225600000 + position)"
MESSAGES: Final = {
    "store": "'bench'",
    "node": "'north'",
    "position": "position",
    "queue": "IF(id % 3 = 0, '/stock', '/orders')",
    "sequence": "printf('urn:uuid:00000000-0000-4000-8000-%012d', id % sequences)",
    "number": "id DIV sequences + 1",
    "message_id": "CONCAT('urn:message:', IF(dice % 5000 = 0, id - 1, id))",
    "outcome": "IF(dice % 1000 = 1, 'dead', 'delivered')",
    "state": "IF(dice % 1000 = 1, 'dead', 'delivered')",
    "reason": "IF(dice % 1000 = 1, 'http_error', NULL)",
    "received_at": _BEGAN,
    "settled_at": f"{_BEGAN} + make_dt_interval(0, 0, 0, 0.001 * (dice % 97 + dice % 1013))",
    "body_digest": "md5(CAST(id AS STRING))",
}
"""Column → what is in it, of the row ``id`` with the random number ``dice``; the others are NULL."""
SEQUENCES: Final = {
    "store": "'bench'",
    "node": "'north'",
    "key": "id",
    "queue": "'/orders'",
    "sequence": "printf('urn:uuid:00000000-0000-4000-8000-%012d', id)",
    "partner": "CONCAT('partner ', id % 20)",
    "kind": "'rm'",
    "state": "'ended'",
    "delivery": "'idle'",
    "last_number": f"{EACH}L",
    "expected": "1L",
    "held": "0L",
    "duplicates": "0L",
}


def archived(spark: Any, directory: Path, rows: int) -> Path:
    """An archive of about ``rows`` messages: one of 2,000 is lost, one of 400 comes late."""
    sequences = rows // EACH
    dealt = (
        spark.range(0, rows, 1, FILES)
        .selectExpr("id", "abs(hash(id)) AS dice", f"{sequences}L AS sequences")
        .selectExpr("*", f"id * 4 + IF(dice % 400 = 0, {12 * sequences} + 1, 0) AS position")
        .where("dice % 2000 <> 7")
    )
    tables = {
        "messages": (dealt, MESSAGES),
        "sequences": (spark.range(sequences), SEQUENCES),
        "ranges": (spark.range(0), {}),
        "ledger": (spark.range(0), {}),
    }
    segments: list[Segment] = []
    for name, (frame, values) in tables.items():
        columns = [column for column in TABLES[name].columns if column.kind is not Kind.BYTES]
        made = frame.selectExpr(
            *(f"CAST({values.get(one.name, 'NULL')} AS {_SQL[one.kind]}) AS `{one.name}`" for one in columns)
        )
        made.write.option("compression", "zstd").parquet(str(directory / name))
        for file in sorted((directory / name).glob("*.parquet")):
            segments.append(_segment(name, file, directory))
    contents = {
        name: Contents(
            columns={one.name: one.kind for one in TABLES[name].columns if one.kind is not Kind.BYTES}, upper=rows
        )
        for name in tables
    }
    (directory / MANIFEST).write_bytes(msgspec.json.encode(_manifest(contents, tuple(segments))))
    return directory


def _segment(table: str, file: Path, directory: Path) -> Segment:
    return Segment(
        table=table,
        file=str(file.relative_to(directory)),
        rows=0,
        bytes=file.stat().st_size,
        sha256="",
        first=(),
        last=(),
        earliest=None,
        latest=None,
        read_at=0,
    )


def _manifest(tables: dict[str, Contents], segments: tuple[Segment, ...]) -> Manifest:
    return Manifest(
        format=FORMAT,
        version=VERSION,
        store="bench",
        node="north",
        read_views=READ_VIEWS,
        encoding="parquet",
        query="",
        bodies=True,
        security="redacted",
        headers=(),
        begun_at=0,
        tables=tables,
        finished_at=0,
        segments=segments,
    )


def reconciled(archive: Path, out: Path) -> tuple[float, dict[str, Any]]:
    """How many seconds it took, and what it found."""
    began = time.perf_counter()
    command = ["pipeline", "reconcile", str(archive), "--out", str(out), "--json", "--at", "2026-01-02"]
    done = CliRunner().invoke(program, command, prog_name="wsrm-mq")
    if done.exit_code not in (0, 1):
        raise SystemExit(done.stderr)
    return time.perf_counter() - began, json.loads(done.stdout.splitlines()[-1])


def linear(sizes: tuple[int, int] = SIZES) -> dict[str, float]:
    """Seconds and the CPU of the JVM at both sizes, and their ratios; other programs stretch CPU less than seconds."""
    found: dict[str, float] = {}
    seconds, used = [], []
    with tempfile.TemporaryDirectory() as name, session("bench", Path(name, "spark.log"), {}) as spark:
        jvm = spark.sparkContext._gateway.proc.pid
        for rows in (WARM, *sizes):
            archive = archived(spark, Path(name, f"archive-{rows}"), rows)
            spent = Spent([jvm])
            took, said = reconciled(archive, Path(name, f"out-{rows}"))
            cpu, others = spent.cpu, spent.others
            spark.catalog.clearCache()
            print(f"{rows} rows: {took:.1f} s, {cpu:.1f} s of CPU, others {others:.0%}", file=sys.stderr, flush=True)
            if rows != WARM:
                seconds.append(took)
                used.append(cpu)
                found |= {f"{rows} rows: s": round(took, 1), f"{rows} rows: CPU s": round(cpu, 1)}
                found |= {f"{rows} rows: missing": said["missing"]}
    return {**found, "ratio": round(seconds[1] / seconds[0], 2), "CPU ratio": round(used[1] / used[0], 2)}


if __name__ == "__main__":
    print(json.dumps(linear()))
