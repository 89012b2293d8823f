"""SQLite files opened without a file left next to them, and their tables read by SQLite."""
