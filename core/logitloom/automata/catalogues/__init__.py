"""Catalogues: large sets of items as constraints."""
