"""Tool calls as models write them: lists of tools, formats of chat templates as data, and the sections of a text."""
