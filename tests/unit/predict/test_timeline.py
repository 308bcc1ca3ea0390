import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wiretax.predict.timeline import Program, Rates, finish_alone, simulate


def test_work_on_one_stream_runs_one_after_the_other():
    program = Program(1)
    program.compute(1.0)
    program.compute(2.0)

    assert simulate(program).finish == pytest.approx([3.0])


def test_the_wire_runs_beside_compute_and_its_tail_is_exposed():
    program = Program(1)
    first = program.compute(1.0)
    program.wire(4.0, after=first)
    program.compute(2.0)

    outcome = simulate(program)

    assert outcome.finish == pytest.approx([5.0])
    assert outcome.exposed_wire == pytest.approx([2.0])


def test_a_task_waits_for_the_host_to_issue_it():
    program = Program(1)
    program.compute(1.0, host=3.0)
    program.compute(1.0, host=3.0)

    assert simulate(program).finish == pytest.approx([7.0])


def test_a_slow_device_hides_a_fast_host():
    program = Program(1)
    for _ in range(4):
        program.compute(1.0, host=0.1)

    assert simulate(program).finish == pytest.approx([4.1])


def test_a_step_is_not_over_before_its_host_is():
    program = Program(1)
    program.compute(0.0, host=2.0)

    assert simulate(program).finish == pytest.approx([2.0])


def test_while_both_streams_are_busy_each_runs_at_its_rate():
    program = Program(1)
    program.compute(2.0)
    program.wire(1.0)

    # The wire takes 2 at half speed, in which compute gets 1.6 of 2 done; the rest runs alone.
    outcome = simulate(program, Rates(compute=0.8, wire=0.5))

    assert outcome.finish == pytest.approx([2.4])
    assert outcome.exposed_wire == pytest.approx([0.0])


def test_the_wire_carries_collectives_in_the_order_of_issue():
    program = Program(1)
    slow = program.compute(3.0)
    program.wire(1.0, after=slow)
    early = program.wire(1.0)
    program.mark("early", early)

    assert simulate(program).marks["early"] == pytest.approx([5.0])


def test_many_kernels_start_before_the_last_is_issued():
    program = Program(1)
    program.kernels(3e-3, host_seconds=3e-3)

    assert simulate(program).finish == pytest.approx([3.5e-3])


def test_draws_are_simulated_side_by_side_and_do_not_mix():
    program = Program(3)
    first = program.compute(np.asarray([1.0, 2.0, 3.0]))
    program.wire(np.asarray([3.0, 2.0, 1.0]), after=first)
    program.compute(1.0)

    together = simulate(program, Rates(compute=np.asarray([0.5, 1.0, 0.5]))).finish

    alone = []
    for work, message, rate in ((1.0, 3.0, 0.5), (2.0, 2.0, 1.0), (3.0, 1.0, 0.5)):
        single = Program(1)
        task = single.compute(work)
        single.wire(message, after=task)
        single.compute(1.0)
        alone.append(float(simulate(single, Rates(compute=rate)).finish[0]))
    assert together == pytest.approx(alone)


def test_nothing_to_do_takes_no_time():
    assert simulate(Program(2)).finish == pytest.approx([0.0, 0.0])


_TASKS = st.lists(
    st.tuples(st.booleans(), st.floats(0, 2), st.floats(0, 1), st.one_of(st.none(), st.integers(0, 30))), min_size=1, max_size=25
)


def _program(tasks, *, wire_factor: float = 1.0) -> Program:
    program = Program(1)
    for index, (on_wire, work, host, before) in enumerate(tasks):
        after = before if before is not None and before < index else None
        if on_wire:
            program.wire(work * wire_factor, host=host, after=after)
        else:
            program.compute(work, host=host, after=after)
    return program


@settings(max_examples=60, deadline=None)
@given(_TASKS)
def test_without_contention_the_simulation_is_the_plain_recurrence(tasks):
    program = _program(tasks)

    assert simulate(program).finish == pytest.approx(finish_alone(program))


@settings(max_examples=60, deadline=None)
@given(_TASKS, st.floats(0.3, 1.0), st.floats(0.3, 1.0))
def test_contention_never_makes_a_step_shorter_and_never_longer_than_one_thing_at_a_time(tasks, compute, wire):
    program = _program(tasks)

    finish = float(simulate(program, Rates(compute, wire)).finish[0])

    assert finish >= float(finish_alone(program)[0]) - 1e-9
    serial = sum(work for _, work, _, _ in tasks) + sum(host for _, _, host, _ in tasks)
    assert finish <= serial / min(compute, wire) + 1e-9


@settings(max_examples=60, deadline=None)
@given(_TASKS, st.floats(0.1, 1.0))
def test_a_faster_wire_never_makes_a_step_longer(tasks, factor):
    slow, fast = _program(tasks), _program(tasks, wire_factor=factor)

    assert float(simulate(fast).finish[0]) <= float(simulate(slow).finish[0]) + 1e-9
