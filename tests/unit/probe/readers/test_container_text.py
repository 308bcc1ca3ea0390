"""How a container was started."""

from __future__ import annotations

from typing import Any

import pytest

from pasted_text import text
from wiretax.model.machine import Surroundings
from wiretax.model.reading import unexplained
from wiretax.probe.readers.container_text import read
from wiretax.probe.readers.piece import Piece


def around(piece: Piece) -> Surroundings:
    assert piece.machine is not None
    assert list(unexplained(piece.machine)) == []
    return piece.machine.surroundings


def values(piece: Piece, kind: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.values.items() if key != "text"} for entry in piece.observations if entry.kind == kind]


@pytest.mark.parametrize(
    ("command", "shm", "part"),
    [
        ("docker run --gpus all -it nvcr.io/nvidia/pytorch:24.01-py3", 64 * 2**20, {"shm_size_bytes": None, "ipc": None, "gpus": "all"}),
        (
            "docker run --gpus all --shm-size=16g --ulimit memlock=-1 img",
            16 * 2**30,
            {"shm_size_bytes": 16 * 2**30, "memlock_unlimited": True},
        ),
        ("sudo docker run --ipc=host --network host img", None, {"ipc": "host", "network": "host"}),
        ("podman run --shm-size 512m --device /dev/infiniband img", 512 * 2**20, {"infiniband": True}),
        ("docker run --privileged img", 64 * 2**20, {"privileged": True, "infiniband": True}),
    ],
)
def test_how_a_container_was_started(command: str, shm: int | None, part: dict[str, Any]) -> None:
    piece = read(text(f"$ {command}"))[0]
    assert around(piece).dev_shm_bytes == shm
    assert around(piece).container == ("podman" if command.startswith("podman") else "docker")
    assert part.items() <= values(piece, "container.run")[0].items()


def test_a_command_over_several_lines() -> None:
    piece = read(text("docker run \\\n  --gpus all \\\n  --shm-size 8gb \\\n  image python train.py\nnext"))[0]
    assert around(piece).dev_shm_bytes == 8 * 2**30
    assert piece.understood == {1, 2, 3, 4}


@pytest.mark.parametrize(("ipc", "shm"), [("private", 67108864), ("host", None)])
def test_docker_inspect(ipc: str, shm: int | None) -> None:
    content = f'"HostConfig": {{\n    "IpcMode": "{ipc}",\n    "ShmSize": 67108864,\n    "Runtime": "nvidia",\n    "Privileged": false\n}}'
    piece = read(text(content))[0]
    assert around(piece).dev_shm_bytes == shm
    assert [entry["name"] for entry in values(piece, "container.inspect")] == ["IpcMode", "ShmSize", "Runtime", "Privileged"]


def test_compose_and_kubernetes() -> None:
    compose = read(text("services:\n  train:\n    shm_size: '8gb'\n    ipc: host"))[0]
    assert around(compose).dev_shm_bytes == 8 * 2**30
    pod = read(text("  volumes:\n  - emptyDir:\n      medium: Memory\n      sizeLimit: 64Gi\n  hostIPC: true\n    nvidia.com/gpu: 1"))[0]
    assert [(entry["name"], entry["value"]) for entry in values(pod, "container.setting")] == [
        ("dev_shm_volume", "Memory"),
        ("dev_shm_volume", "64Gi"),
        ("hostIPC", "true"),
        ("gpus", "1"),
    ]
    assert around(pod).container == "kubernetes"


@pytest.mark.parametrize("content", ["", "we run docker in production", "ipc: something odd here", "run the container"])
def test_other_text_says_nothing_of_a_container(content: str) -> None:
    assert read(text(content)) == ()


def test_the_warning_of_an_image_states_the_size_of_shared_memory() -> None:
    (piece,) = read(text("NOTE: The SHMEM allocation limit is set to the default of 64MB.  This may be\n"))
    assert piece.machine is not None and piece.machine.surroundings.dev_shm_bytes == 64 * 2**20
    assert [entry.kind for entry in piece.observations] == ["container.shm_note"]


@pytest.mark.parametrize(
    "line",
    ["It also happens with docker run too, no idea why.", "docker run fails at once", "Without docker run it is the same: it hangs."],
)
def test_a_sentence_that_names_the_command_starts_no_container(line: str) -> None:
    assert read(text(line)) == ()


@pytest.mark.parametrize("line", ["docker run ubuntu:22.04 nvidia-smi", "I start it as `docker run --rm img` there"])
def test_a_command_without_settings_has_the_default_size(line: str) -> None:
    assert around(read(text(line))[0]).dev_shm_bytes == 64 * 2**20


@pytest.mark.parametrize("value", ["true", '"large"', '""'])
def test_a_size_that_is_no_number_is_none(value: str) -> None:
    assert around(read(text(f'  "ShmSize": {value},'))[0]).dev_shm_bytes is None
