"""The host: hooks, entry points, options, and what holds while a chain is made."""
