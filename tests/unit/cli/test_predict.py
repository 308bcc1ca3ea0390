"""`wiretax predict` as people type it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from wiretax.cli.main import run
from wiretax.store.codec import decode_run

ROOT = Path(__file__).parents[3]
EXAMPLE = ["--profile", str(ROOT / "examples/h200x2/profiles.json"), "--wire", str(ROOT / "examples/h200x2/wires.json")]
FORMULA = ["--grad-bytes", "200MB", "--busbw", "22GB/s"]


def test_the_formula_of_two_numbers(capfd):
    assert run(["predict", *FORMULA, "--gpus", "2,8"]) == 0
    out = capfd.readouterr().out
    assert "9.1 ms" in out and "15.9 ms" in out


def test_the_ladder_lists_pcie_and_nvlink_generations(capfd):
    assert run(["predict", "--ladder"]) == 0
    out = capfd.readouterr().out
    for name in ("PCIe 3 x16", "PCIe 4 x16", "PCIe 5 x16", "PCIe 6 x16", "NVLink 2", "NVLink 3", "NVLink 4", "NVLink 5", "TCP sockets"):
        assert name in out


def test_a_profile_and_a_wire_print_a_table_of_ranges(capfd):
    assert run(["predict", *EXAMPLE, "--strategy", "ddp,fsdp2", "--gpus", "2,4", "--batch", "4"]) == 0
    out = capfd.readouterr().out
    assert "gpt1.7b, batch 4 a GPU" in out
    for heading in ("low", "expected", "high", "tax", "memory"):
        assert heading in out
    assert "by the ring model" in out


def test_json_is_the_document_and_out_writes_it_too(capfd, alone):
    assert run(["predict", *EXAMPLE, "--gpus", "2", "--json", "--out", "here.json"]) == 0
    out = capfd.readouterr().out
    document = json.loads(out)
    assert [one["num_gpus"] for one in document["forecasts"]] == [1, 2, 1, 2]
    assert decode_run(out.encode(), "stdout") == decode_run((alone / "here.json").read_bytes(), "file")
    assert not (alone.parent / "home").exists()


def test_nothing_heavy_is_needed(alone):
    arguments = ["predict", *EXAMPLE, "--gpus", "2"]
    code = f"import sys; from wiretax.cli.main import run; assert run({arguments}) == 0; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_save_keeps_it_in_the_folder_of_runs(alone):
    assert run(["predict", *FORMULA, "--save"]) == 0
    assert len(list((alone.parent / "home" / "runs").glob("*.json"))) == 1


def test_an_nccl_tests_table_is_a_wire(capfd):
    assert (
        run(["predict", "--from", str(ROOT / "tests/data/h200x2/nccl_tests_all_reduce_shm.txt"), "--params", "1.76B", "--gpus", "2"]) == 0
    )
    out = capfd.readouterr().out
    assert "nccl_tests_all_reduce_shm" in out and "1.76 B parameters" in out


def test_a_config_gives_the_all_reduce_and_the_memory(capfd, alone):
    (alone / "config.json").write_text(
        json.dumps(
            {
                "model_type": "llama",
                "hidden_size": 4096,
                "intermediate_size": 11008,
                "num_attention_heads": 32,
                "num_hidden_layers": 32,
                "vocab_size": 32000,
            }
        )
    )
    arguments = ["--config", "config.json", "--busbw", "22GB/s", "--gpus", "8", "--sequence-length", "2048", "--gpu-memory", "24GiB"]
    assert run(["predict", *arguments, "--strategy", "ddp,fsdp2"]) == 0
    out = capfd.readouterr().out
    assert "too much" in out and "6.74 B parameters" in out


def test_a_lever_by_its_name_reaches_the_prediction(capfd):
    def expected(*more):
        assert run(["predict", *EXAMPLE, "--gpus", "2", "--batch", "4", "--wires", "p2p_off", "--json", *more]) == 0
        return json.loads(capfd.readouterr().out)["forecasts"][1]["step_seconds"]["expected"]

    assert expected("--set", "comm_hook=powersgd") < expected()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--grad-bytes", "200Mb", "--busbw", "22GB/s"], "counts bits"),
        (["--grad-bytes", "200MB", "--busbw", "22"], "has no unit that is a rate"),
        (["--grad-bytes", "200MB", "--busbw", "22GB"], "is an amount, not a rate"),
        (["--grad-bytes", "-1", "--busbw", "22GB/s"], "is no size"),
        ([*FORMULA, "--gpus", "0"], "is no list of GPUs"),
        ([*FORMULA, "--gpus", "two"], "is no list of GPUs"),
        ([*FORMULA, "--strategy", "magic"], "'magic' is no strategy"),
        ([*FORMULA, "--params", "7e9"], "are two sizes"),
        ([*FORMULA, "--wires", "default"], "--wires chooses among the wires of --wire RUN"),
        (["--grad-bytes", "200MB", "--latency", "20us"], "--latency goes with --busbw"),
        (["--busbw", "22GB/s", "--step-time", "90ms"], "There is nothing to predict"),
        (["--grad-bytes", "200MB"], "There is no wire to predict for"),
        (["--busbw", "22GB/s"], "There is nothing to predict"),
        ([*EXAMPLE, "--busbw", "22GB/s"], "are two wires"),
        ([*EXAMPLE, "--grad-bytes", "1MB"], "--profile knows the sizes"),
        ([*EXAMPLE, "--wires", "ethernet"], "Measured wires: default, gloo, p2p_off, socket"),
        ([*EXAMPLE, "--set", "bucket=1"], "There is no lever 'bucket'"),
        ([*EXAMPLE, "--set", "accumulation_steps=0"], "must be 1 or more"),
        (["--profile", "nowhere.json", "--busbw", "1GB/s"], "There is no file nowhere.json"),
        (["--preset", "gpt9", "--busbw", "1GB/s"], "There is no preset 'gpt9'"),
        (["--preset", "gpt1.7b", "--sequence-length", "9" * 400, "--busbw", "1GB/s"], "is no whole number from 1 to"),
        ([*FORMULA, "--accumulation-steps", "9" * 23], "is no whole number from 1 to"),
        ([*FORMULA, "--step-time", "1e308s"], "more than there can be"),
        (["--params", "1e308", "--ladder"], "more than there can be"),
        (["--params", "7e9", "--recipe", "magic", "--busbw", "1GB/s"], "is no recipe"),
    ],
)
def test_wrong_usage_is_exit_2_with_what_to_write_instead(capfd, arguments, words):
    assert run(["predict", *arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert words in err


def test_settings_of_a_file_are_read_like_flags(capfd, alone):
    (alone / "wiretax.toml").write_text('[predict]\nbusbw = "22GB/s"\ngpus = "2"\n')
    assert run(["predict", "--grad-bytes", "200MB"]) == 0
    assert "9.1 ms" in capfd.readouterr().out


def test_the_largest_figures_that_are_taken_can_be_reckoned_with(capfd):
    largest = ["--params", "1e17", "--gpus", "2,65536", "--step-time", "1e6s"]
    for wire in (["--ladder"], ["--busbw", "1B/s", "--latency", "1e6s"]):
        assert run(["predict", *largest, *wire]) == 0
        out = capfd.readouterr().out
        assert "nan" not in out
        assert "inf" not in out


def test_a_start_up_that_was_typed_is_in_the_time(capfd):
    assert run(["predict", "--grad-bytes", "200MB", "--busbw", "22GB/s", "--latency", "50ms", "--gpus", "2"]) == 0
    assert "59.1 ms" in capfd.readouterr().out
