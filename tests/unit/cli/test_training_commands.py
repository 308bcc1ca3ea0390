"""`wiretax profile` and `wiretax scale` as people type them; the jobs themselves are played."""

import json
from dataclasses import replace

import pytest

import profiles as made_up
import sample_runs
from wiretax.cli.main import run
from wiretax.errors import BadInput
from wiretax.jobs import profile as profile_job
from wiretax.jobs import scale as scale_job
from wiretax.model.money import Price
from wiretax.model.run import Outcome
from wiretax.model.training import Training
from wiretax.store.codec import decode_run


def profiled():
    return replace(sample_runs.cpu_only(), command="profile", training=Training(profiles=(made_up.profile(device="cpu"),)), verdict=None)


@pytest.fixture
def jobs(monkeypatch):
    """Plays both jobs; gives the options that each was called with."""
    seen = {"profile": [], "scale": []}

    def play(name, result):
        def job(options, _on_progress):
            seen[name].append(options)
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setattr({"profile": profile_job, "scale": scale_job}[name], name, job)

    play("profile", profiled())
    play("scale", replace(sample_runs.cpu_only(), command="scale"))
    seen["play"] = play
    return seen


def test_profile_takes_a_preset_and_its_settings(jobs):
    flags = [
        "--preset",
        "gpt1.7b",
        "--batch",
        "4,16",
        "--strategy",
        "ddp,FULL_SHARD",
        "--world-size",
        "2,8",
        "--gpu",
        "1",
        "--budget",
        "2m",
    ]
    more = [
        "--sequence-length",
        "512",
        "--precision",
        "bf16",
        "--accumulation-steps",
        "4",
        "--checkpointing",
        "--compile",
        "--set",
        "bucket_cap_mb=50",
    ]
    assert run(["profile", *flags, *more]) == 0
    (options,) = jobs["profile"]
    assert options.subject.source == "gpt1.7b"
    settings = options.subject.settings
    assert (settings.sequence_length, settings.precision, settings.accumulation_steps) == (512, "bf16", 4)
    assert settings.activation_checkpointing and settings.compiled
    assert options.subject.levers.bucket_cap_mb == 50
    assert (options.batches, options.strategies, options.world_sizes) == ((4, 16), ("ddp", "FULL_SHARD"), (2, 8))
    assert (options.gpu, options.budget_seconds, options.device) == (1, 120, "auto")
    assert options.started is not None


def test_profile_writes_a_file_that_predict_reads(jobs, capfd, alone):
    assert run(["profile", "--preset", "gpt-tiny", "--out", "profile.json", "--no-save"]) == 0
    assert decode_run((alone / "profile.json").read_bytes(), "out").training.profiles == (made_up.profile(device="cpu"),)
    capfd.readouterr()
    assert run(["predict", "--profile", "profile.json", "--busbw", "1GB/s", "--gpus", "2", "--json"]) == 0
    assert [one["num_gpus"] for one in json.loads(capfd.readouterr().out)["forecasts"]] == [1, 2]


def test_a_saved_profile_is_found_by_the_id_of_its_run(jobs, capfd):
    assert run(["profile", "--preset", "gpt-tiny"]) == 0
    assert run(["predict", "--profile", profiled().run_id, "--busbw", "1GB/s", "--gpus", "2"]) == 0
    assert "made up, batch 8 a GPU" in capfd.readouterr().out


def test_your_own_step_and_a_config_are_sources(jobs, alone):
    assert run(["profile", "--step", "my_training:step"]) == 0
    assert run(["profile", "--config", "config.json"]) == 0
    assert [one.subject.source for one in jobs["profile"]] == ["my_training:step", "config.json"]


def test_json_prints_the_document_alone(jobs, capfd):
    assert run(["profile", "--preset", "gpt-tiny", "--json"]) == 0
    out, err = capfd.readouterr()
    assert decode_run(out.encode(), "stdout") == profiled()
    assert "kept as" in err


@pytest.mark.parametrize(("status", "code"), [("complete", 0), ("failed", 3), ("interrupted", 130)])
def test_the_exit_code_says_how_it_ended(jobs, status, code):
    jobs["play"]("profile", replace(profiled(), outcome=Outcome(status=status)))
    assert run(["profile", "--preset", "gpt-tiny"]) == code


def test_a_mistake_in_the_users_step_is_exit_2_with_its_own_words(jobs, capfd):
    jobs["play"]("profile", BadInput("The loss has 8 elements (8), but backward needs one.", do="Return loss.mean() or loss.sum()."))
    assert run(["profile", "--step", "mine:step"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "The loss has 8 elements" in err and "do: Return loss.mean()" in err


def test_scale_takes_numbers_of_gpus_wires_and_a_price(jobs):
    flags = ["--gpus", "1,2,4", "--preset", "gpt1.7b", "--strategy", "ddp,fsdp2", "--scaling", "strong", "--wires", "default,p2p_off"]
    assert (
        run(["scale", *flags, "--steps", "30", "--budget", "5m", "--batch", "16", "--device", "cuda", "--price", "2", "--currency", "usd"])
        == 0
    )
    (options,) = jobs["scale"]
    assert (options.counts, options.strategies, options.scaling, options.wires) == (
        (1, 2, 4),
        ("ddp", "fsdp2"),
        "strong",
        ("default", "p2p_off"),
    )
    assert (options.steps, options.budget_seconds, options.batches, options.device) == (30, 300, (16,), "cuda")
    assert options.price == Price(amount=2, currency="USD", per="gpu_hour")


def test_scale_alone_leaves_everything_to_the_job(jobs):
    assert run(["scale"]) == 0
    (options,) = jobs["scale"]
    assert (options.subject, options.counts, options.wires, options.batches) == (None, None, None, ())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["profile"], "say which step: --preset"),
        (["profile", "--preset", "gpt-tiny", "--step", "a:b"], "are two steps; give one"),
        (["profile", "--step", "mine"], "write module:function"),
        (["profile", "--config", "model.toml"], "is named ....json"),
        (["profile", "--preset", "gpt-tiny", "--batch", "0"], "is no list of batch sizes"),
        (["profile", "--preset", "gpt-tiny", "--set", "bucket=1"], "There is no lever 'bucket'"),
        (["profile", "--preset", "gpt-tiny", "--out", "missing/x.json"], "there is no folder"),
        (["profile", "--preset", "gpt-tiny", "--precision", "fp8"], "fp8"),
        (["scale", "--precision", "bf16"], "say which step these settings are for"),
        (["scale", "--gpus", "1;2"], "is no list of GPUs"),
        (["scale", "--scaling", "sideways"], "sideways"),
        (["scale", "--price", "2"], "needs its currency"),
    ],
)
def test_wrong_usage_is_exit_2_and_starts_nothing(jobs, capfd, arguments, words):
    assert run(arguments) == 2
    out, err = capfd.readouterr()
    assert out == "" and words in err
    assert jobs["profile"] == [] and jobs["scale"] == []


@pytest.mark.parametrize("command", ["profile", "predict", "scale"])
def test_help_needs_no_torch_and_names_an_example(command, capfd):
    assert run([command, "--help"]) == 0
    out = capfd.readouterr().out
    assert f"wiretax {command} --" in out
