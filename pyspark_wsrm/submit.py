"""``wsrm-mq`` for spark-submit, which runs a file, and has Python import from that file's folder first: nothing in this
one bears the name of a module of Python's own."""

from wsrm_mq.cli import main

if __name__ == "__main__":
    main()
