"""How the time to encode one long run of a character grows with its length.

    python benchmarks/encode_long_runs.py

Prints CPU seconds per length, best of three, and the ratio to the length before: 2 is linear.
"""

import time

from corpus_platform.tokenization.encoder import Encoder, load_encoder
from corpus_platform.tokenization.training import tokenizer_bytes, train

LENGTHS = (50_000, 100_000, 200_000, 400_000)


def main() -> None:
    """Print a row per character."""
    trained = train(["the cat sat on the mat"], vocab_size=300, special_tokens=["<|endoftext|>"])
    encoder = load_encoder(tokenizer_bytes(trained), eos_token="<|endoftext|>")
    for letter in ("a", "-", "中"):
        before, row = 0.0, []
        for length in LENGTHS:
            seconds = min(_seconds(encoder, letter * length) for _ in range(3))
            row.append(
                f"{length:,}: {seconds:.3f} s" + (f" (x{seconds / before:.1f})" if before else "")
            )
            before = seconds
        print(f"{letter}  " + "   ".join(row))


def _seconds(encoder: Encoder, text: str) -> float:
    start = time.process_time()
    encoder.encode([text])
    return time.process_time() - start


if __name__ == "__main__":
    main()
