"""The store: one SQLite file, its tables, the transactions that write it, and what guards both."""
