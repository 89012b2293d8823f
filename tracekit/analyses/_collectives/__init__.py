"""What the analyses of communication share: their tables and their wording."""
