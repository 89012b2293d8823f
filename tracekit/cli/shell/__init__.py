"""What all commands share: the program around them, options, output, start-up."""
