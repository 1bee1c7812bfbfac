"""``python -m wsrm_mq`` is ``wsrm-mq``."""

from wsrm_mq.cli import main

if __name__ == "__main__":
    main()
