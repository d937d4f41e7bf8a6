"""``python -m logitloom``: the command ``logitloom``."""

from __future__ import annotations

import sys

from logitloom_command import main

if __name__ == "__main__":
    sys.exit(main())
