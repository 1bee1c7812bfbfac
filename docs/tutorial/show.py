"""Shows what the service has in its own database."""

import sqlite3

for n, text in sqlite3.connect("orders.db").execute("SELECT n, text FROM orders ORDER BY rowid"):
    print(n, text)
