"""The host: hooks, entry points, options, and the rules in force while a chain is made."""
