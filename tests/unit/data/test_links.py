import pytest

from wiretax.data import links


@pytest.mark.parametrize(
    ("stated", "version", "payload"),
    [(26.562e9, 4, 25e9), (25.781e9, 2, 25e9), (53.125e9, 5, 50e9), (14.062e9, 3, 14.0625e9), (25e9, 3, 25e9), (26.562e9, None, 25e9)],
)
def test_the_line_rate_a_driver_states_becomes_what_the_link_carries(stated, version, payload):
    assert links.nvlink_payload(driver_bytes_per_second=stated, version=version)[0] == pytest.approx(payload)


def test_a_rate_nobody_knows_is_taken_as_the_driver_states_it():
    assert links.nvlink_payload(driver_bytes_per_second=77e9)[0] == 77e9


@pytest.mark.parametrize(("capability", "payload"), [("9.0", 25e9), ("10.0", 50e9), ("8.6", 14.0625e9), ("12.0", None), (None, None)])
def test_without_a_stated_rate_the_generation_decides_and_an_unknown_one_is_unknown(capability, payload):
    found = links.nvlink_payload(compute_capability=capability)
    assert (found[0] if found else None) == payload


@pytest.mark.parametrize(("generation", "width", "gigabytes"), [(3, 16, 15.75), (4, 16, 31.5), (5, 16, 63.0), (6, 16, 121.0), (4, 4, 7.88)])
def test_pcie_rates_are_those_of_the_specification(generation, width, gigabytes):
    assert links.pcie_rate(generation, width) == pytest.approx(gigabytes * 1e9, rel=0.002)


def test_a_link_that_does_not_exist_has_no_rate():
    assert links.pcie_rate(9, 16) is None
    assert links.pcie_rate(4, 0) is None


def test_every_fraction_is_ordered_and_has_a_source():
    for name in links._facts()["fraction"]:
        healthy = links.fraction(name)
        assert 0 < healthy.low < healthy.expected < healthy.high < 1.2
        assert healthy.source
    for name in links._facts()["host_wire"]:
        healthy, start = links.host_wire(name)
        assert 0 < healthy.low < healthy.expected < healthy.high and start > 0 and healthy.source
