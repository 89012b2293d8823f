"""Device rows by queue and kind, against windows of time."""
