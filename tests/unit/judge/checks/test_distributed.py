import pytest

from boxes import box, found, run
from texts import text_run
from wiretax.judge.checks.distributed import check


def timeout(rank: int, sequence: int, operation: str = "ALLREDUCE", elements: int = 1) -> str:
    return (
        f"[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={sequence}, "
        f"OpType={operation}, NumelIn={elements}, NumelOut={elements}, Timeout(ms)=600000) ran for 600054 milliseconds.\n"
    )


def test_ranks_at_one_operation_waited_for_a_dead_or_late_one():
    text = "world_size: 4\n" + timeout(0, 88) + timeout(1, 88) + timeout(3, 88)
    findings = found(check, text_run(text))
    assert findings.keys() == {"collective-timeout"}
    assert findings["collective-timeout"].title == "ALLREDUCE waited for 600 s and was given up (seen by rank 0, 1 and 3)"
    assert "Rank 2 did not complain" in findings["collective-timeout"].remedy


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (timeout(1, 87), "rank 1 at 87"),
        (timeout(1, 88, "ALLGATHER"), "rank 1 in ALLGATHER"),
        (timeout(1, 88, elements=5), "rank 1 with 5 elements"),
    ],
)
def test_ranks_at_different_operations_are_named(other, words):
    findings = found(check, text_run(timeout(0, 88) + other))
    assert words in findings["ranks-desynchronised"].title
    assert "not the wire" in findings["collective-timeout"].remedy


def test_each_rank_in_a_file_of_its_own_is_one_job():
    assert "ranks-desynchronised" in found(check, text_run(timeout(0, 88), timeout(1, 87)))


def test_two_jobs_are_not_compared():
    assert "ranks-desynchronised" not in found(check, text_run(timeout(0, 88), timeout(0, 900)))


def test_gathers_may_differ_in_size():
    assert "ranks-desynchronised" not in found(check, text_run(timeout(0, 88, "ALLGATHER", 5) + timeout(1, 88, "ALLGATHER", 6)))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: X\n", "ranks-desynchronised"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", "gpu-out-of-memory"),
        ("[ 9.1] Out of memory: Killed process 4711 (python) total-vm:1kB\n", "host-out-of-memory"),
        ("RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.\n", "ddp-unused-parameters"),
        (
            "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 3/4 clients joined.\n",
            "rendezvous-failed",
        ),
        ("PG watchdog got stuck for 480 seconds without making progress\n", "collective-hang"),
    ],
)
def test_what_ends_a_rank_is_named(text, code):
    assert found(check, text_run(text)).keys() == {code}


@pytest.mark.parametrize("subject", [text_run("init_process_group('nccl', timeout=timedelta(seconds=3600))\n"), run(box(2))])
def test_a_configured_timeout_is_none(subject):
    assert found(check, subject) == {}
