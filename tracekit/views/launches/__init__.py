"""From device work back to the host: launching call, range, layer and step."""
