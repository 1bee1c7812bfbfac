"""The HTTP form of a node: each operation translates one of its verbs."""
