from dataclasses import replace

import pytest

from profiles import profile, sweep
from wiretax.model.measurement import Measurements, Overlap, Transport
from wiretax.predict.contention import channels_of, contention, measured_contention


def beside(matmul: float, reduce: float, *, wire="default", world_size=2, kernel="matmul"):
    return Overlap(
        kernel=kernel,
        gpu=0,
        rank=0,
        wire=wire,
        world_size=world_size,
        num_bytes=2**28,
        matmul_alone_seconds=1.0,
        matmul_beside_seconds=matmul,
        all_reduce_alone_seconds=1.0,
        all_reduce_beside_seconds=reduce,
    )


def test_a_slow_down_measured_both_ways_becomes_a_rate_each():
    found = contention([beside(1.25, 2.0)], "default", 2)

    assert found.compute == pytest.approx(0.8)
    assert found.wire == pytest.approx(0.5)
    assert found.assumptions == ()


def test_the_range_lies_around_the_expected_rate():
    found = contention([beside(1.25, 2.0)], "default", 2)

    assert found.compute_low < found.compute < found.compute_high < 1
    assert found.wire_low < found.wire < found.wire_high < 1


def test_a_collective_keeps_a_multiprocessor_a_channel_whatever_a_large_product_felt():
    found = contention([beside(1.02, 2.0)], "default", 2, channels=24, multiprocessors=132)

    assert found.compute == pytest.approx(108 / 132)
    assert "24 of 132" in found.assumptions[0]


def test_a_product_that_felt_more_than_the_channels_is_believed():
    assert contention([beside(1.5, 1.1)], "default", 2, channels=4, multiprocessors=132).compute == pytest.approx(1 / 1.5)


def test_a_whole_layer_is_believed_before_one_product_and_before_the_channels():
    found = contention([beside(1.02, 2.0), beside(1.6, 1.7, kernel="layer")], "default", 2, channels=60, multiprocessors=132)

    assert found.compute == pytest.approx(1 / 1.6)
    assert found.wire == pytest.approx(1 / 1.7)


def test_the_nearest_number_of_gpus_counts():
    found = contention([beside(1.1, 1.0), beside(1.4, 1.0, world_size=8)], "default", 6)

    assert found.compute == pytest.approx(1 / 1.4)


def test_the_ranks_median_counts():
    assert contention([beside(1.1, 1.0), beside(1.2, 1.0), beside(5.0, 1.0)], "default", 2).compute == pytest.approx(1 / 1.2)


def test_another_wires_contention_is_not_used_and_the_guess_is_named():
    found = contention([beside(1.5, 1.5, wire="default")], "socket", 2)

    assert found.compute == pytest.approx(1 / 1.1)
    assert "was not measured" in found.assumptions[0]
    assert found.wire_low < found.wire == 1.0


def test_a_measurement_that_looks_faster_beside_is_no_speed_up():
    found = contention([beside(0.98, 0.9)], "default", 2)

    assert found.compute == 1.0
    assert found.wire == 1.0


def test_channels_come_from_nccls_log():
    logged = replace(
        sweep("all_reduce", 2, [(8, 1e-5)]),
        transports=(
            Transport(source_gpu=0, target_gpu=1, name="P2P/CUMEM", channels=24),
            Transport(source_gpu=1, target_gpu=0, name="P2P/CUMEM", channels=24),
        ),
    )
    measurements = Measurements(collectives=(logged,), overlap=(beside(1.02, 2.0),))

    assert channels_of(measurements, "default") == 24
    assert channels_of(measurements, "socket") is None
    assert measured_contention(measurements, profile(), "default", 2).compute == pytest.approx(76 / 100)


def test_cpu_ranks_share_their_processors_with_gloo():
    found = measured_contention(Measurements(), profile(device="cpu"), "gloo", 2)

    assert found.compute_low < found.compute == 0.5
    assert found.compute_high == 1.0
    assert "share the processors" in found.assumptions[0]
