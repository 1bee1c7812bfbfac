"""One Spark for all tests of a worker: it takes ten seconds to begin. `make test-spark` installs what they need."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.target import Target, serving

HERE = Path(__file__).parent

# The tables of tests are small: to compile a plan, and to plan anew while it runs, takes longer than to run it.
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def settings(where: str) -> dict[str, str]:
    """Those of a session whose files are all in ``where``: Java does not go by TMPDIR."""
    java = f"-Dlog4j2.configurationFile=file:{HERE}/log4j2.properties"
    return SETTINGS | {
        "spark.driver.extraJavaOptions": f"{java} -Djava.io.tmpdir={where}",
        "spark.executor.extraJavaOptions": f"-Djava.io.tmpdir={where}",
        "spark.local.dir": where,
        "spark.sql.warehouse.dir": where,
    }


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """Every Java of these tests, those of commands too: most end before it pays to compile code twice."""
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture
def target() -> Iterator[Target]:
    """A service that writes down what comes."""
    with serving(Target()) as found:
        yield found


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without PySpark these cannot even be imported: `make test-spark` runs them."""
    return None if config.getoption("spark") else True


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session of Spark on this machine."""
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    where = str(tmp_path_factory.mktemp("spark"))
    builder: Any = SparkSession.builder.master("local[2]")
    for name, value in settings(where).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
