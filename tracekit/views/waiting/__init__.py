"""Time that ranks wait in collectives: for a late rank, or for a busy GPU."""
