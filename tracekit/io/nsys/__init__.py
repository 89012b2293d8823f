"""nsys."""
