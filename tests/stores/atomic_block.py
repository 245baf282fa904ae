"""Django, set up once in a process for any number of databases."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import django  # type: ignore[import-untyped]  # has no types
from django.conf import settings  # type: ignore[import-untyped]  # as above
from django.db import connections, transaction  # type: ignore[import-untyped]  # as above


@contextmanager
def atomic_block(database: dict[str, Any]) -> Iterator[Any]:
    """Open a connection of Django's with a transaction, under a name of its own."""
    if not settings.configured:
        settings.configure(DATABASES={})
        django.setup()
    name = f"shop-{uuid4().hex}"
    connections.settings[name] = connections.configure_settings({"default": {}, name: database})[name]
    try:
        with transaction.atomic(using=name):
            yield connections[name]
    finally:
        connections[name].close()
        del connections[name], connections.settings[name]
