"""How numbers, units and names are written, in verdicts and reports alike."""
