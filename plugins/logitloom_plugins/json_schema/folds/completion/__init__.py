"""Short texts with which what has been written becomes a complete value."""
