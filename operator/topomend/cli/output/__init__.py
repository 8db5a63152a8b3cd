"""What commands print: text that is safe in a terminal, tables, JSON and YAML, and how they fail."""
