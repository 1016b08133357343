"""What ends a detached run, and the remedy that belongs to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.host.trees import tree
from wizard.probe.detached import Ending, Starter, what_ends_runs

SESSION = {"proc/self/cgroup": "0::/user.slice/user-1000.slice/session-3.scope\n"}
MANAGER = {
    "proc/self/cgroup": "0::/user.slice/user-1000.slice/user@1000.service/app.slice/code.scope\n"
}
KILLS = {"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n"}


def ends(root: Path, files: dict[str, str], **starter: object) -> Ending | None:
    given: dict[str, object] = {"user": "me", "environment": {}, **starter}
    return what_ends_runs(tree(root, files), Starter(**given))  # type: ignore[arg-type]


def stat(pid: str, parent: str, name: str) -> dict[str, str]:
    return {
        f"proc/{pid}/stat": f"{pid} ({name}) S {parent} 1 1 0 -1\n",
        f"proc/{pid}/comm": f"{name}\n",
    }


def test_nothing_ends_a_run_on_a_plain_machine(tmp_path: Path) -> None:
    assert ends(tmp_path, SESSION) is None


def test_logind_that_kills_is_said_with_both_commands(tmp_path: Path) -> None:
    found = ends(tmp_path, {**SESSION, **KILLS})

    assert found is not None
    assert "log out" in found.what
    assert "sudo loginctl enable-linger me" in found.fix
    assert "systemd-run --user --scope" in found.fix


def test_a_user_who_lingers_needs_only_the_scope(tmp_path: Path) -> None:
    found = ends(tmp_path, {**SESSION, **KILLS, "var/lib/systemd/linger/me": ""})

    assert found is not None
    assert "enable-linger" not in found.fix


@pytest.mark.parametrize(
    ("files", "killed"),
    [
        ({"etc/systemd/logind.conf": "[Login]\n#KillUserProcesses=no\n"}, False),
        # Commented out in the packager's own file: the value that was built in.
        ({"usr/lib/systemd/logind.conf": "[Login]\n#KillUserProcesses=yes\n"}, True),
        ({**KILLS, "etc/systemd/logind.conf.d/50.conf": "KillUserProcesses=no\n"}, False),
        ({"usr/lib/systemd/logind.conf.d/10.conf": "KillUserProcesses = true\n"}, True),
        ({**KILLS, "etc/systemd/logind.conf.d/a.conf": "KillExcludeUsers=root me\n"}, False),
        ({**KILLS, "etc/systemd/logind.conf.d/a.conf": "KillOnlyUsers=student\n"}, False),
    ],
)
def test_the_last_word_of_logind_counts(
    tmp_path: Path, files: dict[str, str], killed: bool
) -> None:
    assert (ends(tmp_path, {**SESSION, **files}) is not None) is killed


def test_root_is_spared_by_logind(tmp_path: Path) -> None:
    assert ends(tmp_path, {**SESSION, **KILLS}, user="root") is None


def test_what_the_service_manager_started_ends_with_it(tmp_path: Path) -> None:
    found = ends(tmp_path, MANAGER)

    assert found == Ending(
        what="this shell belongs to your service manager, which ends with your last session",
        fix="sudo loginctl enable-linger me",
    )
    assert ends(tmp_path, {**MANAGER, "var/lib/systemd/linger/me": ""}) is None


JOB = {"SLURM_JOB_ID": "42"}
STEP = {**JOB, "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    ("group", "variables", "remedy"),
    [
        ("/slurm/uid_1/job_42/step_0/task_0", STEP, "sbatch"),
        ("/slurm/uid_1/job_42/step_extern", {}, "sbatch"),
        ("/system.slice/slurmstepd.scope/job_42/step_interactive", STEP, "sbatch"),
        ("/system.slice/slurmstepd.scope/job_42/step_batch", JOB, "--follow"),
    ],
)
def test_a_scheduler_ends_its_step_and_everything_in_it(
    tmp_path: Path, group: str, variables: dict[str, str], remedy: str
) -> None:
    found = ends(tmp_path, {"proc/self/cgroup": f"0::{group}\n"}, environment=variables)

    assert found is not None
    assert "job 42" in found.what
    assert remedy in found.fix


def test_a_shell_that_is_a_containers_first_process_takes_it_along(tmp_path: Path) -> None:
    files = {**stat("self", "9", "python"), **stat("9", "1", "make"), **stat("1", "0", "bash")}
    found = ends(tmp_path, files, container="docker")

    assert found is not None
    assert "first shell (bash)" in found.what
    assert "docker exec" in found.fix


def test_a_shell_under_a_tiny_init_takes_the_container_along(tmp_path: Path) -> None:
    files = {**stat("self", "7", "python"), **stat("7", "1", "zsh"), **stat("1", "0", "tini")}

    assert ends(tmp_path, files, container="docker") is not None


@pytest.mark.parametrize("first", ["sleep", "python3", "supervisord", "sshd"])
def test_a_container_whose_first_process_stays_keeps_its_runs(tmp_path: Path, first: str) -> None:
    files = {**stat("self", "7", "python"), **stat("7", "1", "bash"), **stat("1", "0", first)}

    assert ends(tmp_path, files, container="docker") is None


def test_a_shell_that_entered_from_outside_may_be_left(tmp_path: Path) -> None:
    files = {**stat("self", "30", "python"), **stat("30", "0", "bash"), **stat("1", "0", "bash")}

    assert ends(tmp_path, files, container="kubernetes") is None


def test_the_name_of_a_process_may_hold_brackets(tmp_path: Path) -> None:
    files = {**stat("self", "1", "a) S 5 (b"), **stat("1", "0", "bash")}

    assert ends(tmp_path, files, container="docker") is not None


def test_processes_that_are_each_others_parents_do_not_hang_the_probe(tmp_path: Path) -> None:
    files = {**stat("self", "7", "python"), **stat("7", "8", "bash"), **stat("8", "7", "bash")}

    assert ends(tmp_path, files, container="docker") is None


@pytest.mark.parametrize("variable", ["COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"])
def test_a_notebook_service_takes_its_machine_back(tmp_path: Path, variable: str) -> None:
    found = ends(tmp_path, {}, environment={variable: "x"})

    assert found is not None
    assert "notebook" in found.what


def test_windows_stops_wsl_when_its_last_window_closes(tmp_path: Path) -> None:
    """microsoft/WSL#8854."""
    found = ends(tmp_path, SESSION, wsl=True)

    assert found is not None
    assert "vmIdleTimeout=-1" in found.fix
