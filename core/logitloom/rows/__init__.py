"""Rows: states as row trees, the serialised format of states, and files that are written whole or not at all."""
