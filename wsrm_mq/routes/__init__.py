"""Messages find their way from node to node: sent to the next one, and placed where they come."""
