import pytest

from wiretax.data.driver_bugs import branch, driver_bugs


@pytest.mark.parametrize(("version", "number"), [("560.35.03", 560), ("560", 560), ("12.4", None), ("", None), (None, None)])
def test_the_branch_of_a_driver(version, number):
    assert branch(version) == number


def test_a_fault_of_a_branch_is_found_with_its_source():
    (bug,) = driver_bugs("560.35.03", ["NVIDIA A40"], "hang")
    assert bug.good_branch == 570 and bug.source.startswith("https://") and bug.date


def test_a_fault_of_one_model_needs_its_name():
    assert driver_bugs("525.60.11", ["NVIDIA GeForce RTX 4090"], "hang")
    assert driver_bugs("525.60.11", ["NVIDIA A40"], "hang") == ()


@pytest.mark.parametrize("version", ["570.86.15", None])
def test_good_and_unknown_drivers_have_none(version):
    assert driver_bugs(version, ["NVIDIA GeForce RTX 4090"], "hang") == ()
