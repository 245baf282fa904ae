"""The first thing that a process does with its app is to enqueue in a transaction of its own."""

import pytest

from tests.first_day.user import User

SHOP = """
import sqlite3

from reprieve import Reprieve

app = Reprieve("sqlite:///app.db"{options})


@app.task
def confirm(order: int) -> None:
    print(f"confirmed {{order}}")


def order(number: int, end: str = "commit") -> None:
    db = sqlite3.connect("app.db", isolation_level=None, timeout=1)
    db.execute("create table if not exists orders (number integer)")
    db.execute("begin immediate")
    db.execute("insert into orders values (?)", [number])
    handle = confirm.using(connection=db).enqueue(number)
    db.execute(end)
    db.close()
    print(handle.id)
"""
ORDER = "from shop import *; order(7)"
OPENED = "from shop import *; app.open(); app.open(); order(7)"


@pytest.mark.parametrize("options", ["", ", shared=True"])
def test_the_first_call_of_a_process_may_join_a_transaction_on_a_store_that_exists(user: User, options: str) -> None:
    user.write("shop.py", SHOP.format(options=options))
    up = user.reprieve("migrate", "up", "--app", "shop:app")
    assert up.status == 0, up.stderr
    done = user.python("-c", ORDER)
    assert done.status == 0, done.stderr
    (job_id,) = done.stdout.split()
    assert user.reprieve("jobs", "list", "--app", "shop:app", "--quiet").stdout.split() == [job_id]


@pytest.mark.parametrize("options", ["", ", shared=True"])
def test_without_a_store_the_first_call_says_at_once_to_open_it_before_the_transaction(
    user: User, options: str
) -> None:
    user.write("shop.py", SHOP.format(options=options))
    fresh = "db.execute('create table if not exists orders (number integer)')"
    user.write("shop.py", (user.folder / "shop.py").read_text().replace(fresh.replace("'", '"'), "pass"))
    made = "import sqlite3; sqlite3.connect('app.db').execute('create table orders (number integer)')"
    if options:
        assert user.python("-c", made).status == 0
    else:
        path = user.folder / "shop.py"
        path.write_text(path.read_text().replace('db.execute("insert into orders values (?)", [number])', "pass"))
    done = user.python("-c", ORDER)
    assert done.status == 1
    assert "StoreNotFound" in done.stderr
    assert "open the store before you begin the transaction, with app.open() or await app.aopen()" in done.stderr
    opened = user.python("-c", OPENED)
    assert opened.status == 0, opened.stderr
    assert user.reprieve("jobs", "list", "--app", "shop:app", "--quiet").stdout.split() == opened.stdout.split()


def test_a_file_with_tables_of_the_application_is_opened_by_an_app_that_shares_it(user: User) -> None:
    user.write("shop.py", SHOP.format(options=""))
    assert user.python("-c", "from shop import *; sqlite3.connect('app.db').execute('create table t (n)')").status == 0
    refused = user.python("-c", "from shop import *; app.open()")
    assert "ForeignStore" in refused.stderr
    assert "Reprieve(…, shared=True), REPRIEVE_SHARED=true, or --shared" in refused.stderr
    user.write("shop.py", SHOP.format(options=", shared=True"))
    done = user.python("-c", OPENED)
    assert done.status == 0, done.stderr
    rolled_back = user.python("-c", "from shop import *; order(8, 'rollback')")
    assert rolled_back.status == 0, rolled_back.stderr
    assert user.reprieve("jobs", "list", "--app", "shop:app", "--quiet").stdout.split() == done.stdout.split()
