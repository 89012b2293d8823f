"""launches."""
