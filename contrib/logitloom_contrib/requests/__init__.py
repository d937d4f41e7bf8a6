"""Chains that requests bring, for engines and servers that hold many requests at once.

``request_document`` reads what a request says, ``permissions`` states what requests may say, ``request_key`` finds
misspelt keys, and ``chain_cache`` compiles each chain once. ``request`` is one running request, ``chain_rows`` the
requests that share a chain, with one state for all of them. ``engine_constraints`` compares a chain with what the
request asks of the engine itself, and ``record`` holds what tokens were chosen from.
"""
