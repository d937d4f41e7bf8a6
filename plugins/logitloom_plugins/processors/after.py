"""The combinator ``after`` by name; it is written in :mod:`logitloom_plugins.combinators.after`."""

from __future__ import annotations

from logitloom_plugins.combinators import After

__all__ = ["After"]
