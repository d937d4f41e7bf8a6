"""Files of compiled automata that processes share."""
