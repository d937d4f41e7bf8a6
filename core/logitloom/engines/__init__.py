"""The protocol of adapters to inference engines, the check of an engine's abilities, and the texts of its tokens."""

from logitloom.engines.binding import DirectCall, EngineAdapter, bind
from logitloom.engines.written_text import WrittenText, stop_strings, written_text

__all__ = ["DirectCall", "EngineAdapter", "WrittenText", "bind", "stop_strings", "written_text"]
