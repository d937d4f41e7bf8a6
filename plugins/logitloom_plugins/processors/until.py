"""The combinator ``until`` by name; it is written in :mod:`logitloom_plugins.combinators.until`."""

from __future__ import annotations

from logitloom_plugins.combinators import Until

__all__ = ["Until"]
