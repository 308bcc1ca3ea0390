from plans import offer
from profiles import profile
from wiretax.model.profile import MemoryPoint
from wiretax.plan.job import Job, shape_of_size
from wiretax.plan.knowledge import Knowledge, Setting
from wiretax.plan.remedies import remedies


def job(size, recipe="adamw_bf16", **more):
    return Job(shape=shape_of_size(size), recipe=recipe, sequence_length=2048, **more)


def test_lighter_recipes_come_heaviest_first_and_each_with_its_need():
    lines = remedies(Knowledge(job(7e9, activation_checkpointing=True)), [offer(gpu="RTX 4090")], Setting(batch_size=1))

    assert lines[0].startswith("LoRA")
    assert lines[1].startswith("QLoRA")
    assert all("GiB" in line for line in lines)


def test_a_smaller_batch_is_offered_with_micro_steps_in_its_place():
    lines = remedies(Knowledge(job(1.7e9)), [offer(gpu="RTX 4090")], Setting(batch_size=64))

    assert "micro-steps an update" in lines[0]
    assert "instead of 64" in lines[0]


def test_activation_checkpointing_is_offered_where_it_is_enough():
    lines = remedies(Knowledge(job(1.7e9)), [offer(gpu="RTX 4090")], Setting(batch_size=8))

    assert any(line.startswith("activation checkpointing") for line in lines)


def test_the_largest_offered_card_is_the_one_to_fit_on():
    lines = remedies(Knowledge(job(13e9)), [offer(gpu="RTX 4090"), offer(gpu="A100 SXM4 80GB")], Setting(batch_size=1))

    assert all("A100 SXM4 80GB" in line or "bigger GPU" in line for line in lines)


def test_a_bigger_gpu_is_the_smallest_that_holds_it():
    lines = remedies(Knowledge(job(7e9)), [offer(gpu="RTX 4090")], Setting(batch_size=1))

    assert lines[-1].startswith("a bigger GPU: one ")


def test_a_lora_is_not_told_to_train_everything():
    lines = remedies(Knowledge(job(30e9, recipe="lora")), [offer(gpu="RTX 4090")], Setting(batch_size=1))

    assert not any("AdamW" in line or "Adafactor" in line for line in lines)
    assert any(line.startswith("QLoRA") for line in lines)


def test_without_a_card_or_a_shape_there_is_no_arithmetic():
    points = (MemoryPoint(strategy="none", batch_size=8, peak_bytes=10**11, at_rest_bytes=9 * 10**10),)

    assert remedies(Knowledge(job(7e9)), [offer()], Setting(batch_size=1)) == ()
    assert len(remedies(Knowledge(Job(profile=profile(memory=points))), [offer(gpu="RTX 4090")], Setting(batch_size=8))) == 1
