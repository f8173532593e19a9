"""Metrics: what the parts count, read in slices, shown to Prometheus or pushed over OTLP.

Parts keep plain integers and know nothing of this package; it only reads them, so a count costs the
hot path one addition. A reading never holds the loop for longer than a slice (`reading.py`): a
scrape of a million jobs in a thousand queues delays no commit by much.
"""

from sepp.metrics.reading import Sources
from sepp.metrics.serving import serve

__all__ = ["Sources", "serve"]
