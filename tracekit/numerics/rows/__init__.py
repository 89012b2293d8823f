"""Device rows, told apart by queue and kind, against windows of time."""
