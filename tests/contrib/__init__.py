import wsrm_mq.contrib.spyne_compat  # noqa: F401  (before the tests import Spyne)
