"""Chains: processors in order, planned once as segments that a step runs one after the other."""

from logitloom.chain.chain import Chain
from logitloom.chain.state import ChainState

__all__ = ["Chain", "ChainState"]
