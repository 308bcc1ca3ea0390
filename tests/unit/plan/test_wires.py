import pytest

from plans import offer
from wiretax.plan.wires import class_busbw, class_efficiency, class_wire, wire_kind


@pytest.mark.parametrize(
    ("card", "said", "kind"),
    [
        ("H100 SXM5", {}, "nvlink"),
        ("MI300X", {}, "nvlink"),
        ("RTX 4090", {}, "staged"),
        ("RTX 4090", {"p2p": True}, "pcie"),
        ("L40S", {}, "unstated"),
        ("L40S", {"p2p": False}, "staged"),
        ("A100 PCIe 80GB", {}, "unstated"),
        ("A100 PCIe 80GB", {"nvlink": True}, "nvlink"),
        ("H100 SXM5", {"nvlink": False, "p2p": True}, "pcie"),
        ("H100 SXM5", {"hosts": 2, "num_gpus": 16}, "network"),
        (None, {}, "unknown"),
    ],
)
def test_what_the_offer_says_counts_before_what_the_card_can(card, said, kind):
    assert wire_kind(offer(gpu=card, **said), 2) == kind


def test_one_gpu_has_no_wire():
    assert wire_kind(offer(gpu="RTX 4090"), 1) == "none"


def test_a_wire_whose_p2p_is_not_stated_spans_both_possibilities():
    card = offer(gpu="L40S").gpu
    staged, pcie, either = (class_busbw(kind, card, 4).range for kind in ("staged", "pcie", "unstated"))

    assert either.low == staged.low
    assert either.expected == staged.expected
    assert either.high == pcie.high


def test_classes_keep_their_order():
    card = offer(gpu="H100 SXM5").gpu
    rates = [class_busbw(kind, card, 8).range.expected for kind in ("staged", "pcie", "nvlink")]

    assert rates == sorted(rates)


def test_two_amd_gpus_have_one_link_and_eight_have_seven():
    card = offer(gpu="MI300X").gpu

    assert class_busbw("nvlink", card, 8).range.expected == pytest.approx(7 * class_busbw("nvlink", card, 2).range.expected)


def test_of_a_network_or_an_unplugged_bridge_nothing_is_known():
    assert class_busbw("network", offer(gpu="L40S").gpu, 16) is None
    assert class_busbw("nvlink", offer(gpu="RTX 4090").gpu, 2) is None


def test_a_typical_wire_carries_its_rate_when_messages_are_large_and_less_when_small():
    wire = class_wire(10e9, "staged", 4)
    curve = wire.curve("all_reduce", 4)

    assert curve.busbw(2**30) == pytest.approx(10e9, rel=0.01)
    assert curve.busbw(2**12) < 1e9


@pytest.mark.parametrize("kind", ["nvlink", "pcie", "staged", "unstated"])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_recorded_efficiencies_sink_with_more_gpus_and_name_their_source(kind, strategy):
    two, eight = (class_efficiency(kind, strategy, count) for count in (2, 8))

    assert 0 < two.range.low < two.range.expected < two.range.high < 1
    assert eight.range.low < two.range.low
    assert eight.range.high < two.range.high
    assert two.source
    assert "ring" in eight.source


def test_the_first_users_box_lies_inside_the_class_without_p2p():
    known = class_efficiency("staged", "ddp", 2).range

    assert known.low <= 0.15 <= known.high


@pytest.mark.parametrize(("kind", "strategy"), [("network", "ddp"), ("unknown", "ddp"), ("nvlink", "tp"), ("nvlink", "pp")])
def test_where_no_case_is_recorded_nothing_is_said(kind, strategy):
    assert class_efficiency(kind, strategy, 4) is None
