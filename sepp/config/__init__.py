"""Configuration: the table of keys, loading, validation, and what holds for each queue.

`load` reads it, `QueuePolicy` answers for queues, `reload` tells what a change touches; the file is
followed by `sepp/reloader.py`. Nothing here logs, writes or waits.
"""

from sepp.config.errors import ConfigError
from sepp.config.load import Loaded, load, load_config
from sepp.config.model import KEYS, Config
from sepp.config.policy import QueuePolicy

__all__ = ["KEYS", "Config", "ConfigError", "Loaded", "QueuePolicy", "load", "load_config"]
