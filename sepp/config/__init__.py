"""Configuration: the table of keys, loading, validation, and what holds for each queue.

`load` reads it, `QueuePolicy` answers for queues, `reload` follows the file while the server runs.
Nothing here logs or writes; `reload` alone waits.
"""

from sepp.config.errors import ConfigError
from sepp.config.load import Loaded, load, load_config
from sepp.config.model import KEYS, Config
from sepp.config.policy import QueuePolicy

__all__ = ["KEYS", "Config", "ConfigError", "Loaded", "QueuePolicy", "load", "load_config"]
