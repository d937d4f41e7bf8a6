"""Arrays: named operations and the backends that have them, operations of rows, and random numbers."""
