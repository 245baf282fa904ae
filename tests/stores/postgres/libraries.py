"""Libraries that applications talk to PostgreSQL with: each opens a connection with a transaction, and ends both."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]  # has no types
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.stores.atomic_block import atomic_block

Opened: TypeAlias = Callable[[str], AbstractContextManager[Any]]
AsyncOpened: TypeAlias = Callable[[str], AbstractAsyncContextManager[Any]]


class Undone(Exception):
    """Ends a transaction without a commit."""


@contextmanager
def in_psycopg(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def in_sqlalchemy(url: str) -> Iterator[sqlalchemy.Connection]:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def in_a_session_of_sqlalchemy(url: str) -> Iterator[Session]:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        engine.dispose()


@contextmanager
def in_django(url: str) -> Iterator[Any]:
    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    with atomic_block(database) as connection:
        yield connection


@asynccontextmanager
async def in_psycopg_awaited(url: str) -> AsyncIterator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def in_asyncpg(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def in_sqlalchemy_awaited(url: str) -> AsyncIterator[AsyncConnection]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with engine.begin() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def in_a_session_of_sqlalchemy_awaited(url: str) -> AsyncIterator[AsyncSession]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        async with AsyncSession(engine) as session, session.begin():
            yield session
    finally:
        await engine.dispose()


every_library = pytest.mark.parametrize(
    "opened", [in_psycopg, in_sqlalchemy, in_a_session_of_sqlalchemy, in_django], ids=lambda opened: opened.__name__
)
every_awaited_library = pytest.mark.parametrize(
    "opened",
    [in_psycopg_awaited, in_asyncpg, in_sqlalchemy_awaited, in_a_session_of_sqlalchemy_awaited],
    ids=lambda opened: opened.__name__,
)
