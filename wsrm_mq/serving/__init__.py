"""What ``wsrm-mq serve`` adds to uvicorn: a protocol of its own, bounds on connections, logs."""
