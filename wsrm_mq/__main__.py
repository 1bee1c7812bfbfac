"""``python -m wsrm_mq`` is ``wsrm-mq``."""

from wsrm_mq.cli import main

main()
