"""Readers that turn a tokenizer into a :class:`logitloom.vocabulary.Vocabulary`, one module per library."""
