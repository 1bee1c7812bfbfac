"""Stores and exports in Spark. ``read`` is the way in; ``spark.read.format("wsrm")`` works by itself too."""

from wsrm_mq.spark.source import DefaultSource, read

__all__ = ["DefaultSource", "read"]
