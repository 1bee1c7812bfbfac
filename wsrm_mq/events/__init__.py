"""Events: told by name, to the log and to ``on_event``."""
