"""The options: types, defaults, meanings, and the sources of their values.

Flags stand above the environment (``WSRM_MQ_<OPTION>``), that above the file (``wsrm-mq.toml``), that above
the default. In the file the options are top-level keys; a partner's habits and limits are a section
``[partner.NAME]``, and another node is one, ``[node.NAME]``. A mistake is a ``ConfigurationError`` that names the
place, the key and what is allowed.
"""

from wsrm_mq.config.loading import find_file, load, settings_from
from wsrm_mq.config.settings import Settings

__all__ = ["Settings", "find_file", "load", "settings_from"]
