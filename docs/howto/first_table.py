"""How many messages of each queue are in which state: python first_table.py STORE"""

import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.read.format("wsrm").load(sys.argv[1]).groupBy("queue", "state").count().show()
