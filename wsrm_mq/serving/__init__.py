"""The parts of ``wsrm-mq serve`` beside uvicorn: a protocol of its own, bounds on connections, logs."""
