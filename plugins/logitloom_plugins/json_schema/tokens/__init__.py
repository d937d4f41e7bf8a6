"""The tokens of a vocabulary that may come next in a configuration."""
