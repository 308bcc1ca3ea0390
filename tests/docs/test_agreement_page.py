"""The page that sets us beside nccl-tests is what the raw output of both says, and the agreement that is asked for holds."""

from __future__ import annotations

from types import ModuleType

import pytest

from loading import load


@pytest.fixture(scope="module")
def make_agreement() -> ModuleType:
    return load("docs/make_agreement.py")


def test_the_page_is_fresh(make_agreement):
    assert make_agreement.PAGE.read_text(encoding="utf-8") == make_agreement.page(), "run: python docs/make_agreement.py"


def test_all_reduce_agrees_with_nccl_tests_over_nvlink_host_memory_and_sockets(make_agreement):
    judged = {comparison.key[0]: comparison for comparison in make_agreement.comparisons() if comparison.key[1] == "all_reduce"}
    assert judged.keys() == {"default", "p2p_off", "socket"}
    assert [failure for comparison in judged.values() for failure in comparison.failures] == []
    assert judged["default"].figures["median busbw ratio from 16 MiB up"] >= 0.97
