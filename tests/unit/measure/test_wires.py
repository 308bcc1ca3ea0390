import pytest

from wiretax.measure.wires import clean, disabling_variables, wires


def names(found):
    return [wire.name for wire in found]


def wire(found, name):
    return next(wire for wire in found if wire.name == name)


def test_a_machine_with_nothing_set_has_no_clean_wire_because_default_is_it():
    assert names(wires({}, cuda=True)) == ["default", "p2p_off", "socket", "gloo"]


def test_default_changes_nothing():
    assert wire(wires({"NCCL_P2P_DISABLE": "1"}, cuda=True), "default").environment == {}


def test_cpu_ranks_have_only_gloo():
    assert names(wires({"NCCL_P2P_DISABLE": "1"}, cuda=False)) == ["gloo"]


def test_gloo_uses_the_loopback_interface():
    assert wire(wires({}, cuda=True), "gloo").environment == {"GLOO_SOCKET_IFNAME": "lo"}


def test_forced_p2p_is_offered_only_when_allowed():
    assert "p2p_forced" not in names(wires({}, cuda=True))
    forced = wire(wires({}, cuda=True, may_force_p2p=True), "p2p_forced")
    assert forced.environment == {"NCCL_P2P_DISABLE": "0", "NCCL_P2P_LEVEL": "SYS"}


def test_the_settings_of_the_slow_wires():
    found = wires({}, cuda=True)
    assert wire(found, "p2p_off").environment == {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}
    assert wire(found, "socket").environment == {
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_NET": "Socket",
        "NCCL_NVLS_ENABLE": "0",
    }


@pytest.mark.parametrize(
    ("found", "taken"),
    [
        ({"NCCL_P2P_DISABLE": "1"}, ["NCCL_P2P_DISABLE"]),
        ({"NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}, ["NCCL_SHM_DISABLE"]),
        ({"NCCL_P2P_LEVEL": "LOC"}, ["NCCL_P2P_LEVEL"]),
        ({"NCCL_P2P_LEVEL": "0", "NCCL_P2P_DISABLE": "1"}, ["NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE"]),
    ],
)
def test_clean_takes_away_only_what_disables_p2p_or_shared_memory(found, taken):
    wire = clean(found)
    assert wire.environment == dict.fromkeys(taken)
    assert set(wire.changes.values()) == {"(unset)"}


@pytest.mark.parametrize(
    "found",
    [{}, {"NCCL_P2P_DISABLE": "0"}, {"NCCL_P2P_LEVEL": "PHB"}, {"NCCL_NVLS_ENABLE": "0"}, {"NCCL_SHM_DISABLE": ""}, {"NCCL_ALGO": "Ring"}],
)
def test_what_disables_nothing_needs_no_clean_wire(found):
    assert disabling_variables(found) == ()
    assert clean(found) is None


def test_a_configuration_file_cannot_be_taken_away_so_it_is_overridden():
    assert clean({}, {"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "LOC"}).environment == {
        "NCCL_P2P_DISABLE": "0",
        "NCCL_P2P_LEVEL": "SYS",
    }


def test_a_variable_that_already_overrides_the_file_is_left_alone():
    assert clean({"NCCL_P2P_DISABLE": "0"}, {"NCCL_P2P_DISABLE": "1"}) is None
