"""What reading a store through Spark costs: `make bench-spark`. One run, ratios: both sides have the same machine.

The source against Spark's JDBC reader where a driver is installed (Debian: libxerial-sqlite-jdbc-java), else against a
plain cursor of sqlite3 in as many processes; and against itself without envelopes. Rounds alternate; the median counts.
What a reconciliation costs is measured by ``spark_reconcile``, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from bench.stores import made

ROWS: Final = 300_000
ROUNDS: Final = 3
PARTITIONS: Final = 2
COLUMNS: Final = ("position", "sequence", "number", "state", "received_at")
DRIVER: Final = Path("/usr/share/java/sqlite-jdbc.jar")
NATIVE: Final = "/usr/lib/x86_64-linux-gnu/jni"
QUERY: Final = f"""
SELECT {", ".join(f"messages.{name}" for name in COLUMNS)}, body
FROM messages JOIN bodies ON bodies.position = messages.position"""
TYPES: Final = "position BIGINT, sequence STRING, number BIGINT, state STRING, received_at BIGINT"
"""Without these the driver's INTEGER has 32 bits, and a word is taken for a number."""


def session(where: str) -> Any:
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder: Any = SparkSession.builder.master(f"local[{PARTITIONS}]")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Djava.library.path={NATIVE}",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": where,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **({"spark.driver.extraClassPath": str(DRIVER)} if DRIVER.exists() else {}),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def through_source(spark: Any, store: Path, columns: tuple[str, ...]) -> None:
    from wsrm_mq.spark import read

    read(spark, str(store), columns=columns, numPartitions=PARTITIONS).write.format("noop").mode("overwrite").save()


def through_jdbc(spark: Any, store: Path, rows: int) -> None:
    options = {
        "url": f"jdbc:sqlite:file:{store}?mode=ro",
        "driver": "org.sqlite.JDBC",
        "dbtable": f"({QUERY})",
        "customSchema": TYPES,
        "partitionColumn": "position",
        "lowerBound": "1",
        "upperBound": str(rows + 1),
        "numPartitions": str(PARTITIONS),
        "fetchsize": "1000",
    }
    spark.read.format("jdbc").options(**options).load().write.format("noop").mode("overwrite").save()


def _cursor(store: str, first: int, last: int) -> None:
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        for _row in db.execute(f"{QUERY} WHERE messages.position BETWEEN ? AND ?", (first, last)):
            pass


def through_cursors(store: Path, rows: int) -> None:
    each = rows // PARTITIONS
    parts = [(str(store), first, first + each - 1) for first in range(1, rows, each)]
    processes = [multiprocessing.Process(target=_cursor, args=part) for part in parts]
    for one in processes:
        one.start()
    for one in processes:
        one.join()


def measured(store: Path, rows: int, where: str) -> dict[str, float | str]:
    """Rows a second of each way, and the ratios that are asked for."""
    spark = session(where)
    against = "jdbc" if DRIVER.exists() else "cursors"
    ways: dict[str, Callable[[], None]] = {
        "with envelopes": lambda: through_source(spark, store, (*COLUMNS, "envelope")),
        "without": lambda: through_source(spark, store, COLUMNS),
        against: (lambda: through_jdbc(spark, store, rows))
        if DRIVER.exists()
        else lambda: through_cursors(store, rows),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):  # the first warms up
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if number:
                rates[name].append(rows / (time.perf_counter() - began))
    spark.stop()
    found = {name: round(statistics.median(rate)) for name, rate in rates.items()}
    return {
        **found,
        "against": against,
        "with / against": round(found["with envelopes"] / found[against], 2),
        "without / with": round(found["without"] / found["with envelopes"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--body", type=int, default=1_000, help="bytes of an envelope")
    parser.add_argument("--only", choices=("source", "reconcile"))
    asked = parser.parse_args()
    if asked.only != "source":
        subprocess.run([sys.executable, "-m", "bench.spark_reconcile"], check=True)
    if asked.only == "reconcile":
        return
    with tempfile.TemporaryDirectory() as where:
        store = made(Path(where, "store.db"), asked.rows, body_bytes=asked.body)
        print(json.dumps({"rows": asked.rows, **measured(store, asked.rows, where)}))


if __name__ == "__main__":
    main()
