"""The lift of an automaton over bytes to the tokens of a vocabulary: the trie, its walks, and tables."""
