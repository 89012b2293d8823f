"""Text of numbers and names, below the analyses: verdicts and reports print them alike."""
