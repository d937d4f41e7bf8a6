"""The combinator ``between`` by name; it is written in :mod:`logitloom_plugins.combinators.between`."""

from __future__ import annotations

from logitloom_plugins.combinators import Between

__all__ = ["Between"]
