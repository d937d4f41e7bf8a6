"""Rows: states as trees of rows, the format in which they travel, and files that are written whole."""
