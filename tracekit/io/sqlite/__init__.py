"""SQLite files opened without a trace left beside them, and their tables read by SQLite."""
