"""What adapters to inference engines share: recognising rows that an engine shows only as token ids."""

from logitloom.engines.binding import bind
from logitloom.engines.row_tracker import RowTracker, right_aligned

__all__ = ["RowTracker", "bind", "right_aligned"]
