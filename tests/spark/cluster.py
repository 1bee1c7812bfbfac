"""A run of a plan on a small cluster of this machine, in a process of its own.

``python -m tests.spark.cluster PLAN URL DIRECTORY`` prints what was done. Each executor is a JVM of its own, and so are
the processes of Python below it: they can be killed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from tests.spark.conftest import settings
from wsrm_mq.spark.replay import run_plan


def main(plan: str, url: str, where: str) -> None:
    os.environ |= {
        "SPARK_HOME": os.path.dirname(pyspark.__file__),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    own = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config(map={**settings(where), **own})
    spark = builder.getOrCreate()
    print(json.dumps(run_plan(spark, Path(plan), [url])._asdict()))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
