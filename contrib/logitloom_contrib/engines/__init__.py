"""Adapters to inference engines: each turns a chain into the object that the engine calls."""
