"""Adapters between logitloom and the engines and models of other projects."""
