"""Finding, opening and reading inputs into canonical frames."""
