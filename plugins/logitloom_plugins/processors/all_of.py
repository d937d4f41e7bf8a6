"""The combinator ``all_of`` by name; it is written in :mod:`logitloom_plugins.combinators.all_of`."""

from __future__ import annotations

from logitloom_plugins.combinators import AllOf

__all__ = ["AllOf"]
