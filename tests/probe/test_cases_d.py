"""Failures people really had with hosts, disks, networks and software: area D, by their ids.

id    caused here by
D02   a container's cgroup whose use is mostly file cache
D03   a limit in a group above ours, and one seen from inside a namespace
D05   HF_ENDPOINT without the hub's own network; a server here that sends on to a closed port
D06   a server that never answers, a closed port, a name that does not exist, each HTTP code; the
      cached model without a network
D08   a user without a home, `/` as home, a read-only cache (a file where a folder should be)
D09   a cache whose locks cannot be written
D11   C libraries that torch has no build for
D12   quota and affinity, whichever is less, at every level and in both versions
D14   proxies of unknown kinds in the environment
D15   missing certificates, proxies and their exceptions, the errors TLS raises

Not caused here: D05's and D06's real hub (no test uses a network); D08's own folders for a user
without a home (wizard.paths decides them; what the probe makes of it is tested); D11's import error
of a wrong C library (there is none here: torchview's tests show that torch's own words are kept);
D15's inspection of TLS by a firm (its error is tested as Python raises it).
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import urllib.error
from dataclasses import replace
from pathlib import Path

import pytest

from tests.probe.checks.sound import FINE, of_software, result_of, variables
from tests.probe.host.hub import Server, closed_port, environment_names_of_proxies, server
from tests.probe.host.test_host import machine, read
from tests.probe.host.trees import GIB, MIB, meminfo, mount, sizes, tree
from wizard.facts import Facts, Host, Reach
from wizard.probe import environment, host, network
from wizard.probe.model import cached_folder

__all__ = ["closed_port", "server"]  # fixtures

GB = 10**9


def facts_of(here: Host) -> Facts:
    return replace(FINE, host=here)


def hub_of(facts: Facts, reach: Reach) -> Facts:
    around = replace(facts.host.surroundings, hub=reach)
    return replace(facts, host=replace(facts.host, surroundings=around))


def test_d02_the_file_cache_of_a_container_is_not_use(tmp_path: Path) -> None:
    limit, used, cache = int(116.4 * GB), int(116.3 * GB), int(102.3 * GB)
    root = machine(
        tmp_path,
        {
            "proc/meminfo": meminfo(500 * GB, int(450.8 * GB)),
            "sys/fs/cgroup/memory.max": f"{limit}\n",
            "sys/fs/cgroup/memory.current": f"{used}\n",
            "sys/fs/cgroup/memory.stat": f"anon 14000000000\ninactive_file {cache}\n",
        },
    )
    facts = read(root)

    assert facts.memory_total_bytes == limit
    assert facts.memory_available_bytes == limit - (used - cache)
    assert result_of("host.memory", facts_of(facts)).state == "ok"


def test_d03_a_limit_of_a_slice_above_counts(tmp_path: Path) -> None:
    group = "user.slice/user-1000.slice/session-3.scope"
    root = machine(
        tmp_path,
        {
            "proc/self/cgroup": f"0::/{group}\n",
            f"sys/fs/cgroup/{group}/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/memory.max": f"{16 * GIB}\n",
            "sys/fs/cgroup/user.slice/memory.current": f"{4 * GIB}\n",
        },
    )
    facts = read(root)

    assert (facts.memory_total_bytes, facts.memory_available_bytes) == (16 * GIB, 12 * GIB)


def test_d03_inside_a_namespace_our_own_limit_is_at_the_root(tmp_path: Path) -> None:
    root = machine(tmp_path, {"sys/fs/cgroup/memory.max": f"{8 * GIB}\n"})

    assert read(root).memory_total_bytes == 8 * GIB


def test_d03_the_hosts_swap_is_not_the_containers(tmp_path: Path) -> None:
    root = machine(tmp_path, {"sys/fs/cgroup/memory.swap.max": "0\n"})

    assert read(root).surroundings.swap_bytes == 0


def test_d05_a_mirror_is_recognised_without_any_network() -> None:
    facts = variables(HF_ENDPOINT="https://hf-mirror.com")
    (problem,) = result_of("settings.endpoint", facts).problems

    assert problem.severity == "info"
    assert problem.fix.endswith("export HF_HUB_DISABLE_XET=1")
    told = variables(HF_ENDPOINT="https://hf-mirror.com", HF_HUB_DISABLE_XET="1")
    assert result_of("settings.endpoint", told).state == "ok"


def test_d05_one_byte_of_a_weight_file_is_asked_for_at_the_mirror(server: str) -> None:
    reach = network.ask_hub({"HF_ENDPOINT": f"{server}/206/"})

    assert reach.kind == "ok"
    assert Server.asked == [(f"/206{network.FILE}", "bytes=0-0")]


def test_d05_the_host_that_a_mirror_sends_on_to_is_the_one_named(
    server: str, closed_port: int
) -> None:
    Server.leads_to = f"http://localhost:{closed_port}/206/file"
    reach = network.ask_hub({"HF_ENDPOINT": f"{server}/302"})

    assert (reach.host, reach.kind) == ("localhost", "closed")
    (problem,) = result_of("settings.hub", hub_of(FINE, reach)).problems
    assert problem.where == "localhost"


@pytest.mark.parametrize(
    ("code", "kind"),
    [(401, "refused"), (403, "refused"), (404, "missing"), (407, "proxy"), (503, "failing")],
)
def test_d06_each_answer_of_the_hub_is_its_own_trouble(server: str, code: int, kind: str) -> None:
    reach = network.ask_hub({"HF_ENDPOINT": f"{server}/{code}"})

    assert reach.kind == kind
    assert reach.detail.startswith(str(code))


def test_d06_a_closed_port_is_said_at_once(server: str, closed_port: int) -> None:
    reach = network.ask_hub({"HF_ENDPOINT": f"http://127.0.0.1:{closed_port}"})

    assert (reach.host, reach.kind) == ("127.0.0.1", "closed")


def test_d06_a_hub_that_never_answers_is_given_up_in_time(server: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        reach = network.ask_hub({"HF_ENDPOINT": address}, limit_seconds=0.1)

    assert reach.kind == "slow"


def test_d06_an_endpoint_that_is_no_address_never_raises() -> None:
    assert network.ask_hub({"HF_ENDPOINT": "not an address"}).kind == "other"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (socket.gaierror(-2, "Name or service not known"), "name"),
        (TimeoutError("timed out"), "slow"),
        (ConnectionRefusedError(111, "Connection refused"), "closed"),
        (OSError("Tunnel connection failed: 407 Proxy Authentication Required"), "proxy"),
    ],
)
def test_d06_name_connection_time_and_proxy_are_told_apart(error: OSError, kind: str) -> None:
    assert network.explain(urllib.error.URLError(error))[0] == kind
    assert network.explain(error)[0] == kind


def test_d06_nothing_is_asked_unless_told_to() -> None:
    assert FINE.host.surroundings.hub is None
    assert result_of("settings.hub", FINE).state == "none"


def test_d06_a_model_in_the_cache_needs_no_network(tmp_path: Path) -> None:
    snapshot = "models--org--model/snapshots/abc"
    tree(tmp_path, {f"{snapshot}/config.json": "{}", f"{snapshot}/model.safetensors": ""})

    found = cached_folder("org/model", {"HF_HUB_CACHE": str(tmp_path)})

    assert found == tmp_path / snapshot


def test_d06_offline_is_said_as_what_it_means() -> None:
    (problem,) = result_of("settings.offline", variables(HF_HUB_OFFLINE="1")).problems

    assert "nothing is fetched" in problem.what


def test_d06_a_full_disk_under_the_hub_cache_is_said_before_a_download(tmp_path: Path) -> None:
    table = mount("/", "ext4", "/dev/sda1") + mount("/models", "xfs", "/dev/sdb1")
    root = machine(tmp_path, {"proc/self/mountinfo": table, "models/": ""})
    usage = sizes(root, {"/": (900 * GIB, 500 * GIB), "/models": (100 * GIB, 10 * MIB)})
    here = host.read_host(root, {"HOME": "/home/me", "HF_HOME": "/models/hf"}, usage)
    (problem,) = result_of("storage.room", facts_of(here)).problems

    assert (problem.severity, problem.where) == ("error", "/models (hub cache)")
    assert problem.fix == "export HF_HOME=/another/disk"


def test_d08_a_user_without_a_home_does_not_end_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("TUNEWRIGHT_HOME")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    here = host.read_host(machine(tmp_path), {"PATH": "/usr/bin", "TMPDIR": "/tmp"})
    (problem,) = result_of("storage.home", facts_of(here)).problems

    assert "export HOME=" in problem.fix


@pytest.mark.parametrize("home", ["/", "/nonexistent"])
def test_d08_a_home_that_is_none_is_said(tmp_path: Path, home: str) -> None:
    here = read(machine(tmp_path), {"HOME": home})

    assert result_of("storage.home", facts_of(here)).state == "warn"


def test_d08_a_cache_that_takes_no_file_is_found_by_making_one(tmp_path: Path) -> None:
    root = machine(tmp_path, {"cache": "a file where a folder should be"})
    here = read(root, {"HOME": "/home/me", "HF_HOME": "/cache"})
    problems = result_of("storage.writable", facts_of(here)).problems

    assert {problem.where for problem in problems} == {
        "/cache/hub (hub cache)",
        "/cache/hub/.locks (hub locks)",
    }
    assert all("--model /path" in problem.fix for problem in problems)


def test_d09_a_cache_of_another_user_is_found_by_its_locks(tmp_path: Path) -> None:
    root = machine(tmp_path, {"cache/hub/.locks": "not a folder that takes our locks"})
    here = read(root, {"HOME": "/home/me", "HF_HOME": "/cache"})
    (problem,) = result_of("storage.writable", facts_of(here)).problems

    assert problem.where == "/cache/hub/.locks (hub locks)"
    assert "export HF_HOME=" in problem.fix


@pytest.mark.parametrize(
    ("libc", "state"),
    [("glibc 2.17", "FAIL"), ("glibc 2.26", "FAIL"), ("musl", "FAIL"), ("glibc 2.28", "ok")],
)
def test_d11_an_old_c_library_is_said_instead_of_a_loop_of_pip(libc: str, state: str) -> None:
    found = result_of("software.libc", of_software(libc=libc))

    assert found.state == state
    assert all("pip cannot help" in problem.fix for problem in found.problems)


@pytest.mark.parametrize(
    ("files", "cores", "limited_by"),
    [
        ({"sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4, "cgroup"),
        ({"sys/fs/cgroup/cpu.max": "350000 100000\n"}, 4, "cgroup"),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, 12, None),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/pod\n",
                "sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu,cpuacct/pod/cpu.cfs_period_us": "100000\n",
            },
            4,
            "cgroup",
        ),
        (
            {
                "proc/self/cgroup": "0::/kubepods/pod\n",
                "sys/fs/cgroup/kubepods/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/kubepods/pod/cpu.max": "max 100000\n",
            },
            2,
            "cgroup",
        ),
        ({"proc/self/status": "Cpus_allowed_list:\t0-2\n"}, 3, "affinity"),
    ],
)
def test_d12_cores_are_the_least_of_machine_affinity_and_quota(
    tmp_path: Path, files: dict[str, str], cores: int, limited_by: str | None
) -> None:
    facts = read(machine(tmp_path, files))

    assert (facts.cpu_cores, facts.cpu_limit_source) == (cores, limited_by)


@pytest.mark.parametrize("name", ["ALL_PROXY", "all_proxy", "https_proxy"])
def test_d14_a_proxy_of_a_kind_that_ends_the_hubs_library_is_said(name: str) -> None:
    facts = variables(**{name: "socks://127.0.0.1:1089"})
    (problem,) = result_of("settings.proxy", facts).problems

    assert (problem.where, problem.severity) == (name, "error")
    assert problem.fix.startswith(f"export {name}=socks5h://127.0.0.1:1089")
    assert "httpx[socks]" in problem.fix


def test_d14_the_probe_itself_does_not_mind_such_a_proxy(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    assert network.ask_hub({"HF_ENDPOINT": f"{server}/206"}).kind == "ok"


def test_d14_the_users_environment_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:1089")
    before = dict(os.environ)
    host.read_host()

    assert dict(os.environ) == before


def test_d15_an_untrusted_certificate_is_named_and_never_switched_off() -> None:
    error = ssl.SSLCertVerificationError("unable to get local issuer certificate")
    kind, detail = network.explain(urllib.error.URLError(error))
    facts = hub_of(FINE, Reach(host="cdn.example", kind=kind, detail=detail))
    (problem,) = result_of("settings.hub", facts).problems

    assert (kind, problem.where) == ("certificate", "cdn.example")
    assert "SSL_CERT_FILE" in problem.fix
    assert "verify" not in problem.fix


def test_d15_a_certificate_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    root = machine(tmp_path, {"etc/ca.pem": ""})
    names = {"SSL_CERT_FILE": "/etc/ca.pem", "REQUESTS_CA_BUNDLE": "/etc/firm.pem"}
    here = read(root, {"HOME": "/home/me", **names})
    (problem,) = result_of("settings.certificates", facts_of(here)).problems

    assert problem.where == "REQUESTS_CA_BUNDLE"
    assert "/etc/firm.pem is not there" in problem.what


def test_d15_a_dead_proxy_is_told_from_a_dead_hub(
    closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in environment_names_of_proxies():
        monkeypatch.delenv(name)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port}")
    reach = network.ask_hub({"HF_ENDPOINT": "http://hub.example"})

    assert (reach.host, reach.kind) == ("127.0.0.1", "proxy")


def test_d15_exceptions_of_a_proxy_must_hold_this_machine() -> None:
    lacking = variables(http_proxy="http://proxy:3128", NO_PROXY="localhost")
    (problem,) = result_of("settings.no-proxy", lacking).problems
    whole = variables(http_proxy="http://proxy:3128", no_proxy="localhost, 127.0.0.1")

    everything = variables(http_proxy="http://proxy:3128", no_proxy="*")

    assert result_of("settings.no-proxy", everything).state == "ok"
    assert "does not spare 127.0.0.1" in problem.what
    assert problem.fix == "export no_proxy=localhost,127.0.0.1 NO_PROXY=localhost,127.0.0.1"
    assert result_of("settings.no-proxy", whole).state == "ok"


def test_d15_two_spellings_of_a_proxy_must_agree() -> None:
    both = variables(http_proxy="http://a:1", HTTP_PROXY="http://b:1")
    one = variables(http_proxy="http://a:1")

    assert result_of("settings.proxy-spelling", both).state == "warn"
    assert result_of("settings.proxy-spelling", one).state == "ok"


def test_what_is_kept_of_the_environment_can_be_written_down() -> None:
    shown = environment.shown({"https_proxy": "http://u:p@proxy:1", "HF_TOKEN": "x"})

    assert json.loads(json.dumps(shown)) == {"https_proxy": "http://…@proxy:1", "HF_TOKEN": "set"}
