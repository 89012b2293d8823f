"""Drawing a diagnosis: text, JSON, Markdown, HTML, figures."""
