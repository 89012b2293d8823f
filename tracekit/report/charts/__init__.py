"""Charts that analyses hand over, drawn for the page and as files."""
