"""What `make servers` decides: nothing to do, what to install, or what to tell a person who may not install."""

from pathlib import Path

import pytest

from tests.servers.install import Machine, provide
from tests.servers.program import Program, ServerMissing, find

APT_GET = """#!/bin/sh
echo "apt-get $* policy=$([ -x "{policy}" ] && "{policy}"; echo $?)" >>"{log}"
case "$*" in
*" update") touch "{lists}" ;;
*" install "*)
    [ -e "{lists}" ] || { echo "E: Unable to locate package"; exit 100; }
    for word; do
        case $word in pgbouncer | redis-server) echo '#!/bin/sh' >"{bin}/$word"; chmod +x "{bin}/$word" ;; esac
    done
    ;;
esac
"""


class Sandbox:
    """A machine of files: a PATH with nothing but what is put there, and an apt-get that writes down its calls."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.policy = folder / "policy-rc.d"
        self.lists = folder / "lists"
        self.log = folder / "log"
        self.log.touch()
        self.redis = Program("Redis", "redis-server", ("redis-server", "valkey-server"), str(folder / "none"))
        self.pgbouncer = Program("PgBouncer", "pgbouncer", ("pgbouncer",), str(folder / "none"))

    def put(self, name: str, text: str = "#!/bin/sh\n") -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def put_apt_get(self) -> None:
        text = APT_GET
        for name in ("policy", "log", "lists", "bin"):
            text = text.replace(f"{{{name}}}", str(getattr(self, name)))
        self.put("apt-get", text)
        for name in ("touch", "chmod"):
            self.bin.joinpath(name).symlink_to(f"/bin/{name}")

    def provide(self, *, is_root: bool) -> int:
        return provide([self.redis, self.pgbouncer], Machine(is_root=is_root, policy=self.policy))

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    made = Sandbox(tmp_path)
    monkeypatch.setenv("PATH", str(made.bin))
    return made


def test_nothing_is_said_or_done_when_every_server_is_found(
    sandbox: Sandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    sandbox.put_apt_get()
    sandbox.put("valkey-server")
    sandbox.put("pgbouncer")
    assert sandbox.provide(is_root=True) == 0
    assert sandbox.provide(is_root=False) == 0
    assert sandbox.calls() == []
    assert capfd.readouterr() == ("", "")


def test_without_root_one_line_says_what_to_install(sandbox: Sandbox, capfd: pytest.CaptureFixture[str]) -> None:
    sandbox.put_apt_get()
    assert sandbox.provide(is_root=False) == 1
    assert sandbox.calls() == []
    assert capfd.readouterr().err == (
        "reprieve: the tests need Redis and PgBouncer; "
        "install with: sudo apt-get install -y --no-install-recommends redis-server pgbouncer\n"
    )


@pytest.mark.parametrize(
    ("programs", "advice"),
    [
        (["brew"], "install with: brew install redis pgbouncer"),
        ([], "install with: your package manager (on Debian: redis-server pgbouncer)"),
    ],
    ids=["homebrew", "unknown"],
)
def test_without_apt_get_nothing_is_installed_even_by_root(
    programs: list[str], advice: str, sandbox: Sandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    for program in programs:
        sandbox.put(program)
    assert sandbox.provide(is_root=True) == 1
    assert capfd.readouterr().err == f"reprieve: the tests need Redis and PgBouncer; {advice}\n"


def test_only_what_is_missing_is_announced_and_installed(sandbox: Sandbox, capfd: pytest.CaptureFixture[str]) -> None:
    sandbox.put_apt_get()
    sandbox.put("redis-server")
    sandbox.lists.touch()
    assert sandbox.provide(is_root=True) == 0
    (call,) = sandbox.calls()
    assert "install --no-install-recommends pgbouncer " in call
    announced, done = capfd.readouterr().err.splitlines()
    assert announced == (
        "reprieve: the tests need PgBouncer: installing pgbouncer with apt-get (no service is started or enabled) …"
    )
    assert done == "reprieve: PgBouncer installed"


def test_no_service_is_started_or_enabled_and_no_trace_of_that_is_left(sandbox: Sandbox) -> None:
    sandbox.put_apt_get()
    sandbox.put("update-rc.d", f'#!/bin/sh\necho "update-rc.d $*" >>"{sandbox.log}"\n')
    sandbox.lists.touch()
    assert sandbox.provide(is_root=True) == 0
    install, *disable = sandbox.calls()
    assert install.endswith("policy=101")
    assert disable == ["update-rc.d redis-server disable", "update-rc.d pgbouncer disable"]
    assert not sandbox.policy.exists()


def test_policy_of_the_machine_stays_as_it_is(sandbox: Sandbox) -> None:
    sandbox.put_apt_get()
    sandbox.lists.touch()
    sandbox.policy.write_text("#!/bin/sh\nexit 104\n")
    sandbox.policy.chmod(0o755)
    assert sandbox.provide(is_root=True) == 0
    assert sandbox.calls()[0].endswith("policy=104")
    assert sandbox.policy.read_text() == "#!/bin/sh\nexit 104\n"


def test_package_lists_are_fetched_where_the_packages_are_unknown(sandbox: Sandbox) -> None:
    sandbox.put_apt_get()
    assert sandbox.provide(is_root=True) == 0
    assert [call.split()[5] for call in sandbox.calls()] == ["install", "update", "install"]


def test_failed_installation_says_why(sandbox: Sandbox, capfd: pytest.CaptureFixture[str]) -> None:
    sandbox.put("apt-get", "#!/bin/sh\necho E: no network\nexit 100\n")
    assert sandbox.provide(is_root=True) == 1
    said = capfd.readouterr().err
    assert said.endswith("reprieve: apt-get did not install Redis and PgBouncer:\nE: no network\n")


def test_fixture_that_needs_a_missing_server_names_the_command(sandbox: Sandbox) -> None:
    with pytest.raises(
        ServerMissing, match=r"^Redis is not installed \(redis-server was not found\); run: make servers$"
    ):
        find(sandbox.redis)


def test_newest_of_several_versions_is_taken(sandbox: Sandbox, tmp_path: Path) -> None:
    for version in ("9", "15", "16"):
        place = tmp_path / "postgresql" / version / "bin"
        place.mkdir(parents=True)
        (place / "initdb").write_text("")
        (place / "initdb").chmod(0o755)
    program = Program("PostgreSQL", "postgresql", ("initdb",), str(tmp_path / "postgresql/*/bin"))
    assert find(program) == tmp_path / "postgresql/16/bin/initdb"
