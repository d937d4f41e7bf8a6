"""Adapters that were written against the calling protocols of engines, and have never run inside these engines."""
