"""JSON Schema as automata: from a schema to the JSON texts whose values validate."""
