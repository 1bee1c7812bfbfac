"""Where Spark finds the format ``wsrm``: it imports every package ``pyspark_*`` and takes its ``DefaultSource``."""

from wsrm_mq.spark.source import DefaultSource

__all__ = ["DefaultSource"]
