"""sepp-trio: a durable job queue server that speaks sepp.v1."""

__version__ = "0.1.0"
