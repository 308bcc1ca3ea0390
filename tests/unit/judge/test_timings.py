import pytest

from texts import text_run
from wiretax.judge.timings import scalings


def only(text: str):
    found = scalings(text_run(text))
    assert len(found) == 1, found
    return found[0]


def test_totals_are_divided_by_the_gpus():
    one = only("1 GPU: 100 samples/s\n4 GPUs: 300 samples/s total\n")
    assert (one.ratio, one.best, one.worst) == (4, 0.75, 0.75)


@pytest.mark.parametrize(
    ("text", "many", "few", "best"),
    [
        ("1 GPU: 2.0 s/it\n4 GPUs: 4.0 s/it\n", "4 GPUs", "one", 0.5),
        ("8 GPUs: 4.0 s/it\n16 GPUs: 8.0 s/it\n", "16 GPUs", "8", 0.5),
        ("1 node: 4.0 s/it\n2 nodes: 8.0 s/it\n", "2 hosts", "one", 0.5),
        ("a single machine (8 GPUs): 400 samples/s\ntwo machines (16 GPUs): 480 samples/s\n", "2 hosts", "one", 0.6),
    ],
)
def test_more_are_compared_with_one_or_with_the_fewest_or_hosts_with_hosts(text, many, few, best):
    one = only(text)
    assert (one.many, one.few, one.best) == (many, few, pytest.approx(best))


@pytest.mark.parametrize(
    "text",
    [
        "2 GPUs: 4.0 s/it\n\n\n\nsomething else\n4 GPUs: 8.0 s/it\n",
        "2 GPUs DDP: 4.0 s/it\n4 GPUs FSDP: 8.0 s/it\n",
        "2 GPUs: 4.0 s/it\n4 GPUs: 100 samples/s\n",
    ],
)
def test_counts_above_one_that_may_not_belong_together_are_not_compared(text):
    assert scalings(text_run(text)) == ()


def test_what_a_rate_counts_is_left_open_where_the_text_does():
    one = only("1 GPU: 100 samples/s\n2 GPUs: 90 samples/s\n")
    assert (one.best, one.worst) == (0.9, 0.45)


def test_a_process_that_would_be_faster_by_waiting_is_a_total():
    assert only("1 GPU: 100 samples/s\n2 GPUs: 150 samples/s\n").best == pytest.approx(0.75)
    assert only("1 GPU: 2.0 s/it\n2 GPUs: 1.2 s/it\n").best == pytest.approx(2.0 / 1.2 / 2)


def test_run_times_of_two_logs_say_what_their_rates_count():
    first = "1 GPU: {'train_runtime': 301.2, 'train_samples_per_second': 33.2}\n"
    total = scalings(text_run(first, "2 GPUs: {'train_runtime': 290.0, 'train_samples_per_second': 34.5}\n"))
    assert {round(s.best, 2) for s in total} == {0.52}
    each = scalings(text_run(first, "2 GPUs: {'train_runtime': 290.0, 'train_samples_per_second': 17.2}\n"))
    assert any(s.metric == "samples_per_second" and round(s.best, 2) == 0.52 for s in each)


def test_fewer_steps_are_the_same_work():
    assert only("1 GPU: 1200 steps in 10:00\n4 GPU: 300 steps in 2:45\n").best == pytest.approx(600 / 165 / 4)
    assert only("1 GPU: 1200 steps in 10:00\n4 GPU: 1200 steps in 12:00\n").best == pytest.approx(600 / 720)


def test_units_that_flip_are_marked():
    assert only("1 GPU: 1.8 it/s\n4 GPUs: 1.9 s/it\n").units_flip
    assert not only("1 GPU: 1.8 it/s\n4 GPUs: 1.4 it/s\n").units_flip


def test_nothing_to_compare_with_is_no_scaling():
    assert scalings(text_run("4 GPUs: 300 samples/s\n")) == ()
    assert scalings(text_run("1 GPU: 300 samples/s\n")) == ()
