"""Values, objects and arrays: the pushdown automaton of a schema, and its configurations."""
