"""Failures people really had with launchers, ranks and native code: area E, by their ids.

id    caused where
E01   tests/runner/test_faults.py: a port that is taken, named with its owner; here: two runs
E02   tests/runner/test_faults.py: a machine that cannot look up its own name
E04   tests/runner/test_launch.py: a starter that is killed; here: what is said of a hang-up
E05   tests/runner/test_faults.py: a full host in a control group of its own; here: each signal
E07   tests/runner/test_life.py: stopping leaves no process behind
E08   here: what CPU Adam lacks without a toolkit
E10   here: the lock of a build that was killed
E11   here: caches on a network disk; tests/test_watch.py: ranks that are done and do not exit
E13   here; tests/engine/test_strategies.py trains 4-bit weights with ZeRO-3 and FSDP2
E14   here, and tests/engine/test_strategies.py trains LoRA with FSDP2
E16   tests/engine/test_route.py: the interface that leads to the first machine
E17   here: rows are tokens before a rank starts; what is said of a barrier that timed out
E19   here: the batch in DeepSpeed's settings
E20   here: the longest row and the vocabulary decide the memory
E22   tests/runner/test_loop.py: variables of another launcher

Not caused: E10's missing system libraries (cpu_adam_lacks names those that torch asks for), E16 on
two real machines.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from engine import rules
from engine.builds import LONGEST_BUILD_SECONDS, keep_builds_here, refuse_stale_locks
from engine.events import EXIT_COMM, EXIT_HOST_OOM, EXIT_OTHER
from engine.failure import RunError
from engine.shard import deepspeed_config, fsdp_config
from engine.spec import Spec
from engine.verdict import Evidence, judge
from tests.planning import facts, fixed
from tests.runner.making import facts as host_facts
from tests.runner.making import plan, spec
from wizard import script
from wizard.planner import plans
from wizard.probe.checks.software import cpu_adam
from wizard.probe.software import cpu_adam_lacks


def script_of(main: Spec) -> str:
    files = script.render(
        plan(main), name="r", python="/python", facts=host_facts(), written="today"
    )
    return files["run.sh"]


def test_e01_ranks_of_two_runs_meet_at_ports_that_nobody_chose() -> None:
    made = script_of(spec())
    assert "--standalone --local-addr 127.0.0.1" in made
    alone = made.partition('if [ "${NNODES:-1}" -gt 1 ]')[2].partition("else")[2]
    assert "29500" not in alone


def test_e04_a_terminal_that_was_closed_is_said_in_words() -> None:
    verdict = judge(
        Evidence(command_code=1, ranks=range(2), first_lost=(0, -signal.SIGHUP), said={})
    )
    assert (verdict.code, verdict.failure) == (EXIT_COMM, "killed")
    assert "SIGHUP (its terminal was closed)" in verdict.message


@pytest.mark.parametrize(
    ("number", "oom_kills", "code", "said"),
    [
        (signal.SIGKILL, 1, EXIT_HOST_OOM, "because the host's memory was full"),
        (signal.SIGKILL, 0, EXIT_COMM, "rank 1 was ended by SIGKILL"),
        (signal.SIGSEGV, 0, EXIT_OTHER, "a crash in native code"),
        (signal.SIGABRT, 0, EXIT_OTHER, "NCCL's watchdog"),
        (signal.SIGBUS, 0, EXIT_OTHER, "/dev/shm or the disk may be full"),
    ],
)
def test_e05_a_signal_is_a_cause_and_never_a_bare_number(
    number: signal.Signals, oom_kills: int, code: int, said: str
) -> None:
    evidence = Evidence(
        command_code=1, ranks=range(2), first_lost=(1, -number), oom_kills=oom_kills
    )
    verdict = judge(evidence)
    assert verdict.code == code
    assert said in verdict.message


def test_e05_a_rank_that_torchrun_ended_is_not_taken_for_the_cause() -> None:
    ended = {"code": EXIT_COMM, "failure": "killed", "t": 1, "message": "ended by SIGTERM"}
    own = {"code": EXIT_OTHER, "failure": "unknown", "t": 2, "message": "its own error"}
    verdict = judge(Evidence(command_code=1, ranks=range(2), exits={0: ended, 1: own}))
    assert (verdict.rank, verdict.message) == (1, "its own error")


def test_e08_without_a_toolkit_offload_is_told_to_lack_it_before_a_model_is_loaded() -> None:
    tools = {"c++": None, "ninja": "1.11", "python headers": None, "nvcc": None}
    lacks = cpu_adam_lacks("0.15.0", "cuda 13.0", tools, {})
    assert lacks == ("c++", "python headers", "nvcc 13.0")
    known = facts()
    known = replace(known, software=replace(known.software, cpu_adam_lacks=lacks))
    (problem,) = cpu_adam(known) or ()
    assert "cannot be built: c++, python headers, nvcc 13.0 missing" in problem.what
    assert "apt-get install -y g++ python3-dev" in problem.fix
    assert cpu_adam_lacks("0.15.0", "cuda 13.0", tools, {"cpu_adam": "True"}) == ()


@pytest.mark.parametrize("place", ["cpu_adam/lock", "py311_cpu/cpu_adam/lock"])
def test_e10_the_lock_of_a_build_that_was_killed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    refuse_stale_locks()
    lock = tmp_path / place
    lock.parent.mkdir(parents=True)
    lock.touch()
    refuse_stale_locks()  # a build that goes on now
    os.utime(lock, times=(0, lock.stat().st_mtime - LONGEST_BUILD_SECONDS - 60))
    with pytest.raises(RunError, match=r"cpu_adam that was killed.* remove that file") as caught:
        refuse_stale_locks()
    assert str(lock) in str(caught.value)


def home_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> Path:
    """A table of mounts with the home on a disk of that kind, in a folder with a blank."""
    for name in ("TRITON_CACHE_DIR", "TRITON_HOME", "TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "a home"
    monkeypatch.setenv("HOME", str(home))
    mounts = tmp_path / "mounts"
    place = str(home).replace(" ", r"\040")
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/home {place} {kind} rw 0 0\n")
    return mounts


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "cifs", "beegfs_nodev", "fuse.sshfs"])
def test_e11_caches_of_compiled_code_leave_a_network_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    mounts = home_on(tmp_path, monkeypatch, kind)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "")  # so that it is put back after the test
    monkeypatch.setenv("TRITON_CACHE_DIR", "")

    said = keep_builds_here(mounts, local=tmp_path)

    own = tmp_path / f"tunewright-{os.getuid()}"
    assert said is not None
    assert f"{tmp_path}/a home/.triton ({kind})" in said
    assert os.environ["TRITON_CACHE_DIR"] == f"{own}/.triton"
    assert os.environ["TORCH_EXTENSIONS_DIR"] == f"{own}/torch_extensions"
    assert own.stat().st_mode & 0o777 == 0o700
    assert keep_builds_here(mounts, local=tmp_path) is None  # the environment says it now


def test_e11_caches_on_a_disk_of_this_machine_stay_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert keep_builds_here(home_on(tmp_path, monkeypatch, "xfs"), local=tmp_path) is None
    assert "TRITON_CACHE_DIR" not in os.environ


def test_e11_no_code_is_loaded_from_a_folder_that_others_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = home_on(tmp_path, monkeypatch, "nfs4")
    (tmp_path / f"tunewright-{os.getuid()}").mkdir()
    (tmp_path / f"tunewright-{os.getuid()}").chmod(0o777)

    said = keep_builds_here(mounts, local=tmp_path)

    assert said is not None
    assert said.endswith("set TRITON_CACHE_DIR and TORCH_EXTENSIONS_DIR to folders of this machine")
    assert "TRITON_CACHE_DIR" not in os.environ


def test_e13_whatever_shares_four_bit_weights_is_planned_only_where_it_combines() -> None:
    made = plans(facts("h100x8"), fixed(method="qlora"))
    assert {one.spec.parallel.strategy for one in made} >= {"ddp", "fsdp"}
    assert not [rules.check(one.spec) for one in made if rules.check(one.spec)]
    split = {"strategy": "layer_split", "device_kind": "cuda", "devices_per_rank": 2}
    two_ranks = spec(method={"method": "qlora"}, parallel={**split, "num_devices": 4})
    (broken,) = rules.check(two_ranks)
    assert (broken.setting, broken.nearest) == ("method", "method=lora")


def test_e14_lora_shards_by_parameter_so_that_frozen_and_trained_ones_may_mix() -> None:
    fsdp = {"strategy": "fsdp", "num_devices": 2, "device_kind": "cuda"}
    made = spec(method={"method": "lora"}, parallel=fsdp)
    assert not rules.check(made)
    assert fsdp_config(made)["version"] == 2  # FlatParameter is version 1's


def test_e17_rows_are_tokens_before_the_first_rank_could_wait_for_them() -> None:
    made = script_of(spec())
    assert made.index("-m engine.prepare") < made.index(': >"$go"')  # which torchrun waits for


def test_e17_a_barrier_that_timed_out_is_a_rank_that_did_not_come() -> None:
    said = (
        "[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, "
        "OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=1800000) ran for 1800328 milliseconds\n"
    )
    verdict = judge(
        Evidence(command_code=1, ranks=range(2), first_lost=(1, -signal.SIGABRT), said={1: said})
    )
    assert (verdict.failure, verdict.rank) == ("comm_timeout", 1)


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3"])
def test_e19_deepspeed_gets_the_batch_of_the_spec_and_no_other_can_be_written(
    strategy: str,
) -> None:
    made = spec(parallel={"strategy": strategy})
    told = deepspeed_config(made)
    parts = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    assert told["train_batch_size"] == told[parts[0]] * told[parts[1]] * made.parallel.ranks
    with pytest.raises(ValueError, match="effective_batch_size is 64, but 1 per device × 2"):
        spec(training={"effective_batch_size": 64})


def test_e20_the_longest_row_decides_the_memory_and_not_the_mean() -> None:
    settings = fixed(
        method="lora", per_device_train_batch_size=1, gradient_checkpointing=True, strategy="single"
    )
    short, long = (plans(facts(chars=chars), settings)[0] for chars in (500, 8000))
    assert long.spec.data.max_length > short.spec.data.max_length
    assert long.memory.device_bytes > short.memory.device_bytes
    loss = [part.bytes for part in long.memory.parts if "loss" in part.name]
    assert loss
    assert min(loss) > 0
