"""The engine of a front in one process: the store, the dispatcher, the watch and the janitor; and forks."""
