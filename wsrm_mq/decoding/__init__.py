"""What bytes from the wire are, in words: ``wsrm-mq envelope decode``."""
