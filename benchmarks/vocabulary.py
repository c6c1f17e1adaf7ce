"""What a vocabulary's size buys: characters and bytes per token, and tokens that are never used.

    python benchmarks/vocabulary.py CONFIG [--sizes 8000 16000 32000 64000]

Takes the documents that the corpus of CONFIG (which must have its clusters) would train its tokenizer
on, trains tokenizers of several sizes on every second one, and encodes the others.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from corpus_platform.config import SPECIAL_TOKENS
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import quiet
from corpus_platform.stages.tokenizer_sample import choose_documents, sample_texts
from corpus_platform.tokenization.encoder import load_encoder
from corpus_platform.tokenization.training import tokenizer_bytes, train


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[8000, 16000, 32000, 64000])
    options = parser.parse_args()
    project = open_project(load_settings(options.config), read_only=True)
    texts = list(sample_texts(project, choose_documents(project), quiet))
    learned, others = texts[::2], texts[1::2]
    chars, size = sum(map(len, others)), sum(len(text.encode()) for text in others)
    print(f"trained on {sum(len(t.encode()) for t in learned):,} bytes, measured on {size:,}")
    for asked in options.sizes:
        started = time.process_time()
        trained = train(learned, vocab_size=asked, special_tokens=list(SPECIAL_TOKENS))
        seconds = time.process_time() - started
        encoder = load_encoder(tokenizer_bytes(trained), eos_token=None)
        ids = encoder.encode(others).flat
        unused = np.count_nonzero(np.bincount(ids, minlength=encoder.vocab_size) == 0)
        print(
            f"{asked:,} asked: {encoder.vocab_size:,} tokens, {chars / len(ids):.3f} chars/token,"
            f" {size / len(ids):.3f} bytes/token, {unused / encoder.vocab_size:.1%} never used,"
            f" trained in {seconds:.1f} s"
        )


if __name__ == "__main__":
    main()
