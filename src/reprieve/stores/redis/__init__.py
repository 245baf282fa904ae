"""Jobs in Redis or Valkey: one server, Sentinel, or a Cluster."""

from reprieve.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
