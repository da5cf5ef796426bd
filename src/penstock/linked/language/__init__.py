"""The query language: parser, syntax nodes and semantic checks."""
