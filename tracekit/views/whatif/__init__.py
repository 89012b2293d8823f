"""What a change would bring: facts of steps, consumers of dequantisation, predicted gains."""
