"""The built-in classification tables: each module judges the failures of one protocol or library."""

from reprieve.core.rules import http, python, ses, smtp

__all__ = ["http", "python", "ses", "smtp"]
