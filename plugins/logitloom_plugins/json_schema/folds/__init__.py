"""Questions about texts, each answered over the moves of states: bytes, reading, completion, distinct items."""
