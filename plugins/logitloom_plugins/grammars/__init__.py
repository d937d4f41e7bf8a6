"""Grammar engines: libraries that say which tokens continue a text of a grammar, as constraints."""
