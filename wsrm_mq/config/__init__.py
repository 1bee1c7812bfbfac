"""The options: types, defaults, meanings, and the sources of their values.

Flags stand above the environment (``WSRM_MQ_<OPTION>``), that above the file (``wsrm-mq.toml``), that above
the default. In the file the options are top-level keys; a partner's habits and limits are a section
``[partner.NAME]``. A mistake is a ``ConfigurationError`` that names the place, the key and what is allowed.
"""

from wsrm_mq.config.keywords import OptionKeywords, PartnerKeywords
from wsrm_mq.config.loading import FILE_NAME, Loaded, examine, find_file, load, named_operations, read, settings_from
from wsrm_mq.config.options import toml
from wsrm_mq.config.settings import OPTIONS, PARTNER_OPTIONS, Partner, Settings, under
from wsrm_mq.config.writing import PURPOSES, as_toml, as_values

__all__ = [
    "FILE_NAME",
    "OPTIONS",
    "PARTNER_OPTIONS",
    "PURPOSES",
    "Loaded",
    "OptionKeywords",
    "Partner",
    "PartnerKeywords",
    "Settings",
    "as_toml",
    "as_values",
    "examine",
    "find_file",
    "load",
    "named_operations",
    "read",
    "settings_from",
    "toml",
    "under",
]
