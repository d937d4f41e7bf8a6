"""Servers of inference engines, with chains in their requests."""
