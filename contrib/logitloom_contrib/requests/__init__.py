"""Chains that requests bring, for engines and servers that hold many requests at once.

``request_document`` reads the chain of a request, ``permissions`` states the limits of requests, ``request_key`` finds
misspelt keys, and ``chain_cache`` compiles each chain once. ``request`` is one running request. ``chain_rows`` holds
all requests with the same chain, and one state for their rows. ``engine_constraints`` compares a chain with the limits
that the request asks of the engine itself. ``request_record`` holds the distributions from which tokens were chosen.
"""
