"""What is easier to say in Python than in SQL. The arguments are views, by their names in pipeline.yml."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf


def settled(enriched: DataFrame, payments: DataFrame) -> DataFrame:
    """Each order once: with its payment as soon as that is there, without one when a minute has gone by."""
    orders, paid = enriched.alias("orders"), payments.alias("payments")
    in_time = sf.expr(
        "orders.order_id = payments.order_id"
        " AND payments.paid_at BETWEEN orders.ordered_at AND orders.ordered_at + INTERVAL 1 MINUTE"
    )
    after = sf.timestamp_diff("SECOND", sf.col("orders.ordered_at"), sf.col("payments.paid_at"))
    return orders.join(paid, in_time, "left_outer").select("orders.*", after.alias("paid_after_s"))
