from tests.first_day.user import User


def test_user_runs_the_installed_wheel_and_not_the_source_tree(user: User) -> None:
    done = user.python("-c", "import reprieve; print(reprieve.__file__)")
    assert "/lib/reprieve/__init__.py" in done.stdout
    assert user.reprieve("--version").stdout.startswith("reprieve ")
