"""What adapters to inference engines share: recognising rows that an engine shows only as token ids."""

from logitloom.engines.binding import EngineAdapter, bind
from logitloom.engines.row_tracker import RowTracker, right_aligned
from logitloom.engines.written_text import WrittenText, stop_strings, written_text

__all__ = ["EngineAdapter", "RowTracker", "WrittenText", "bind", "right_aligned", "stop_strings", "written_text"]
