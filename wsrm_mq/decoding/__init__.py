"""The decoder of bytes from the wire, for ``wsrm-mq envelope decode``."""
