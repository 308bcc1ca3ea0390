from boxes import box, found, run, unknown, wire
from wiretax.judge.checks.backend import check


def test_gloo_as_the_users_own_backend_on_gpus_is_a_problem():
    finding = found(check, run(box(2), wire(gigabytes=1.7, backend="gloo", kind=None)))["backend-gloo"]
    assert finding.severity == "problem" and "1.70 GB/s" in finding.title


def test_gloo_measured_for_comparison_is_no_fault():
    assert found(check, run(box(2), wire(), wire("gloo", 1.7, backend="gloo", kind=None))) == {}


def test_gloo_on_processors_is_what_they_have():
    assert found(check, run(box(2), wire(backend="gloo", kind=None, gpus=()))) == {}
    assert found(check, run(None, wire(backend="gloo", kind=None, gpus=()))) == {}


def test_where_nothing_was_measured_nothing_is_said():
    assert found(check, run(unknown(box(2)))) == {}
