"""The sources of a JSON Schema: texts, files, response formats, Python classes; and checks of the schema itself."""
