"""The pattern language: parser, syntax nodes, and errors with positions."""
