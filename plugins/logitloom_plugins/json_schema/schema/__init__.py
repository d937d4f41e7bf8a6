"""Reading a schema: dialects, references, keywords, and the formulas that they mean."""
