"""The PostgreSQL store: many processes and machines, inside an application's own database if it likes."""

from reprieve.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
