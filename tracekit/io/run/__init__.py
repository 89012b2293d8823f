"""Several inputs as one run: opened, put on one clock, cut to fit memory, redacted."""
