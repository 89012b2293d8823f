"""Where devices are idle and why, what copies are not hidden, and how steps divide."""
