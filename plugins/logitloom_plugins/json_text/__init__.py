"""JSON as text, whatever the schema."""
