"""The built-in plug-ins of logitloom: one file per plug-in, each behind an entry point of its own."""
