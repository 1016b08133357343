"""Variables that change what a run does, and the folders they lead to; secrets are left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from wizard import paths
from wizard.probe.reading import below, exists

SHOWN = re.compile(
    r"""(https?|all|no)_proxy | HTTPS?_PROXY | ALL_PROXY | NO_PROXY
    | HF_(ENDPOINT|HOME|HUB_CACHE|HUB_OFFLINE|HUB_DISABLE_XET|DATASETS_CACHE|DATASETS_OFFLINE)
    | TRANSFORMERS_OFFLINE | MODELSCOPE_CACHE
    | SSL_CERT_(FILE|DIR) | REQUESTS_CA_BUNDLE | CURL_CA_BUNDLE
    | RANK | WORLD_SIZE | LOCAL_RANK | MASTER_ADDR | MASTER_PORT
    | (CUDA|ASCEND_RT|HIP|ROCR|MUSA|MLU)_VISIBLE_DEVICES | CUDA_DEVICE_ORDER | ZE_AFFINITY_MASK
    | NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES) | NCCL_\w+ | GLOO_SOCKET_IFNAME
    | PYTORCH_(CUDA_)?ALLOC_CONF | OMP_NUM_THREADS | CUDA_HOME | CXX | TORCH_EXTENSIONS_DIR
    | HOME | TMPDIR | XDG_(DATA|CACHE)_HOME | TUNEWRIGHT_HOME | PYTHONPATH""",
    re.VERBOSE,
)
SECRET = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "MODELSCOPE_API_TOKEN")
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")


def shown(environment: Mapping[str, str]) -> dict[str, str]:
    """What of the environment may be shown and kept; of a secret only that it is set."""
    found = {
        name: PASSWORD.sub("…@", value)
        for name, value in sorted(environment.items())
        if SHOWN.fullmatch(name)
    }
    return found | {name: "set" for name in SECRET if environment.get(name)}


def broken(environment: Mapping[str, str], root: Path) -> dict[str, str]:
    """Variables that name a certificate file or folder which is not there → that name."""
    return {
        name: environment[name]
        for name in CERTIFICATES
        if environment.get(name) and not exists(below(root, environment[name]))
    }


def folders(environment: Mapping[str, str]) -> dict[str, Path]:
    """What a run writes to → the folder; ours are missing for a user without a home."""
    found = {
        "hub cache": hub_cache(environment),
        "tmp": Path(environment.get("TMPDIR") or "/tmp"),
    }
    try:
        return {"runs": paths.runs(), "cache": paths.cache(), **found}
    except RuntimeError:  # a number without a name, as containers have
        return found


def hub_cache(environment: Mapping[str, str]) -> Path:
    """Where models fetched from the hub are kept, by the hub library's own rules."""
    named = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    if environment.get("HF_HOME"):
        return Path(environment["HF_HOME"]).expanduser().absolute() / "hub"
    cache = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or "/") / ".cache"
    return Path(cache).absolute() / "huggingface" / "hub"
