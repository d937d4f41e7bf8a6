"""Short texts that complete a value whose beginning has been written."""
