"""Sharing: nothing that names a person or a place is left, equal things stay equal, and what went is said."""

from __future__ import annotations

import json
from dataclasses import replace

import sample_runs
from wiretax.jobs.share import shared
from wiretax.model.finding import Evidence, Finding
from wiretax.model.run import Run
from wiretax.store.codec import encode

SECRETS = ("trainer-7", "alice", "10.9.8.7", "4f2a9c1e", "aa:bb:cc:dd:ee:ff", "S3CR3T99")


def private() -> Run:
    run = sample_runs.h200_pair()
    assert run.machine is not None
    uuid = "GPU-4f2a9c1e-1111-2222-3333-444455556666"
    gpus = (replace(run.machine.gpus[0], uuid=uuid), *run.machine.gpus[1:])
    around = replace(run.machine.surroundings, network_interfaces={"eth0": "10.9.8.7/24"})
    software = replace(
        run.machine.software, nccl_environment={"NCCL_DEBUG_FILE": "/home/alice/project/log.txt", "NCCL_COMM_ID": "trainer-7:4000"}
    )
    finding = Finding(
        code="gpu-lost",
        severity="critical",
        confidence="certain",
        title="trainer-7 lost a GPU",
        evidence=(Evidence(source="/home/alice/dmesg", text=f"{uuid} at 10.9.8.7, aa:bb:cc:dd:ee:ff, serial: S3CR3T99, user alice"),),
        remedy="ask alice@trainer-7.example.com",
    )
    return replace(
        run,
        machine=replace(run.machine, gpus=gpus, surroundings=around, software=software),
        findings=(finding,),
        tags=("alice",),
    )


def test_no_name_of_a_person_or_place_is_left() -> None:
    clean, _ = shared(private())
    text = encode(clean).decode()
    for secret in SECRETS:
        assert secret in encode(private()).decode()
        assert secret not in text, secret


def test_what_was_removed_is_counted_by_kind() -> None:
    _, removed = shared(private())
    text = ", ".join(removed)
    for kind in ("host name", "user name", "private path", "hardware address", "serial number", "UUID", "network address"):
        assert kind in text, (kind, text)


def test_equal_things_get_equal_placeholders() -> None:
    clean, _ = shared(private())
    assert clean.machine is not None
    assert clean.machine.gpus[0].uuid == "GPU-0"
    assert "GPU-0" in clean.findings[0].evidence[0].text


def test_figures_and_facts_stay() -> None:
    run = private()
    clean, _ = shared(run)
    assert clean.measurements == run.measurements
    assert clean.run_id == run.run_id
    assert clean.created_at == run.created_at
    assert clean.machine is not None
    assert clean.machine.gpus[0].name == "NVIDIA H200"
    assert clean.machine.software.driver == "580.159.04"


def test_sharing_twice_changes_nothing_more() -> None:
    once, _ = shared(private())
    twice, _ = shared(once)
    assert json.loads(encode(twice)) == json.loads(encode(once))


def test_a_run_without_names_says_that_nothing_was_removed() -> None:
    from wiretax.model.run import Tool

    run = Run(run_id="20261130T000000-000000", created_at="2026-11-30T00:00:00+00:00", tool=Tool(version="1"))
    assert shared(run) == (run, ())
