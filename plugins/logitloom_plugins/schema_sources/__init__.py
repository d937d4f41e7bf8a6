"""What stands for a JSON Schema: texts, files, response formats, Python classes; and what is wrong with it at sight."""
