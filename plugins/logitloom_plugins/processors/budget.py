"""The combinator ``budget`` by name; it is written in :mod:`logitloom_plugins.combinators.budget`."""

from __future__ import annotations

from logitloom_plugins.combinators import TokenBudget

__all__ = ["TokenBudget"]
