"""Chat: a child that answers with a tuned model: JSON lines in, pieces of text out."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import own_code
from engine.failure import RunError, classify
from engine.fetch import read_fetched, read_spec
from engine.record import read_json
from engine.theirs import why

MAX_NEW_TOKENS = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """What to load to answer."""

    base: Path
    """Folder of the whole weights."""
    adapter: Path | None
    words: Path
    """Folder of the tokenizer and its chat template."""
    template: str | None = None
    """Shipped template, where the folder of the tokenizer does not say it itself."""


def source(folder: Path, *, untuned: bool) -> Source:
    """What a run folder, or a model folder by itself, answers with.

    Raises RunError (bad_spec) when there is nothing to load.
    """
    run = (folder / "spec.toml").is_file()
    if untuned:
        if not run:
            raise RunError("bad_spec", f"{folder}: not a run folder, so it has no base model")
        base = read_fetched(folder).path
        template = read_spec(folder / "spec.toml").model.template
        return Source(base=base, adapter=None, words=base, template=template)
    model = folder / "model" if run else folder
    if _scores(model):
        raise RunError(
            "bad_spec", f"{model}: a reward model scores answers and writes none (stage=reward)"
        )
    if (model / "adapter_config.json").is_file():
        base = read_fetched(folder).path if run else _base_of(model)
        return Source(base=base, adapter=model, words=model)
    if not (model / "config.json").is_file():
        raise RunError("bad_spec", f"{model}: no model there (has the run finished?)")
    return Source(base=model, adapter=None, words=model)


def _scores(model: Path) -> bool:
    """Whether a model, or an adapter, was made to give a number."""
    task = read_json(model / "adapter_config.json").get("task_type")
    architectures = read_json(model / "config.json").get("architectures") or []
    return task == "SEQ_CLS" or any("SequenceClassification" in str(name) for name in architectures)


def _base_of(adapter: Path) -> Path:
    """The base an adapter names, if the run that made it is around it or the base is local."""
    if (adapter.parent / "fetched.json").is_file():
        return read_fetched(adapter.parent).path
    base = Path(str(read_json(adapter / "adapter_config.json").get("base_model_name_or_path")))
    if not base.is_dir():
        raise RunError("bad_spec", f"{adapter}: its base model {base} is not a folder here")
    return base


def trusts(folder: Path) -> bool:
    """Whether a run's user, who asks now, let code run that comes with its model.

    Raises RunError (bad_spec) for code that is not what the run fetched.
    """
    if not (folder / "spec.toml").is_file() or folder.stat().st_uid != os.getuid():
        return False
    if not read_spec(folder / "spec.toml").model.trust_remote_code:
        return False
    fetched = read_fetched(folder)
    own_code.check_unchanged(fetched.path, fetched.code)
    return True


class Answerer:
    """A loaded model with its tokenizer."""

    def __init__(self, folder: Path, *, untuned: bool) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        from engine.data import chat_template
        from engine.prepare import load_tokenizer

        found, trusted = source(folder, untuned=untuned), trusts(folder)
        self.tokenizer = load_tokenizer(found.words, trusted=trusted)
        self.tokenizer.chat_template = chat_template(found.template, self.tokenizer)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = AutoModelForCausalLM.from_pretrained(
            str(found.base),
            dtype=torch.bfloat16 if device == "cuda" else torch.float32,
            device_map={"": device},
            trust_remote_code=trusted,
            use_safetensors=True,
        )
        if found.adapter is not None:
            from peft import PeftModel

            self.model = PeftModel.from_pretrained(self.model, str(found.adapter))
        self.model.eval()

    def answer(self, messages: list[dict[str, str]], max_new_tokens: int) -> Any:
        """An iterator of the answer's pieces, greedily decoded so that it can be repeated.

        Raises what generation raised, after the last piece.
        """
        from transformers import TextIteratorStreamer

        inputs = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
        ).to(self.model.device)
        streamer = TextIteratorStreamer(self.tokenizer, skip_prompt=True, skip_special_tokens=True)
        errors: list[BaseException] = []

        def generate() -> None:
            try:
                self.model.generate(
                    **inputs,
                    streamer=streamer,
                    max_new_tokens=max_new_tokens,
                    do_sample=False,
                    temperature=None,
                    top_p=None,
                    top_k=None,
                    eos_token_id=self.stop_ids(),
                    pad_token_id=self.tokenizer.pad_token_id or self.stop_ids()[0],
                )
            except BaseException as error:
                errors.append(error)
                streamer.end()

        thread = threading.Thread(target=generate, daemon=True)
        thread.start()
        yield from (piece for piece in streamer if piece)
        thread.join()
        if errors:
            raise errors[0]

    def stop_ids(self) -> list[int]:
        """Tokens that end an answer: the model's, the tokenizer's, and the template's end mark."""
        said = self.model.generation_config.eos_token_id
        ids = {*(said if isinstance(said, list) else [said]), self.tokenizer.eos_token_id}
        rendered = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
            tokenize=False,
        ).rstrip()
        added = self.tokenizer.added_tokens_decoder
        ids |= {number for number, token in added.items() if rendered.endswith(str(token))}
        return sorted(number for number in ids if number is not None)


def say(**fields: Any) -> None:
    """One JSON line to whoever asked."""
    sys.stdout.write(json.dumps(fields, ensure_ascii=True) + "\n")
    sys.stdout.flush()


def converse(answerer: Answerer) -> None:
    """Answer one line after another until the input ends."""
    for line in sys.stdin:
        try:
            asked = json.loads(line)
            pieces = answerer.answer(
                asked["messages"], int(asked.get("max_new_tokens", MAX_NEW_TOKENS))
            )
            for piece in pieces:
                say(text=piece)
            say(done=True)
        except KeyError as error:
            say(error=f"the request has no {why(error)}")
        except Exception as error:
            say(error=classify(error).message)


def main() -> int:
    """Load the model, then answer; the exit code."""
    parser = argparse.ArgumentParser(prog="engine.chat", description=__doc__)
    parser.add_argument("folder", type=Path, help="a run folder, or a model folder")
    parser.add_argument("--base", action="store_true", help="answer with the untuned base model")
    options = parser.parse_args()
    for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ[name] = "1"
    try:
        answerer = Answerer(options.folder.absolute(), untuned=options.base)
    except Exception as error:
        failure = classify(error)
        say(error=failure.message)
        print(failure.message, file=sys.stderr)  # noqa: T201
        return failure.code
    converse(answerer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
