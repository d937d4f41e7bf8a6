"""The texts of a schema as states and moves: objects, arrays, layouts, and which values exist."""
