"""The driver of stores in SQLite: the one place that imports ``sqlite3``, and knows its files."""
