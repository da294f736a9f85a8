"""Spark looks into modules of such names by itself: where Klamm is installed, every session knows `format("klamm")`."""

try:
    from klamm.spark.source import KlammSource as DefaultSource
except ImportError:  # a PySpark that is too old: that must not keep it from finding the sources of others
    pass
else:
    __all__ = ["DefaultSource"]
