"""Row tracking for adapters to engines that show rows as token ids alone: which earlier row each row continues."""

from logitloom_contrib.row_tracking.row_tracker import RowTracker, right_aligned

__all__ = ["RowTracker", "right_aligned"]
