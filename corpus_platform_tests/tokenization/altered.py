"""An engine that really differs from the reference: one id of one text is another one."""

from collections.abc import Sequence

import numpy as np

from corpus_platform.tokenization.encoder import Encoded, Encoder


class AlteredEncoder:
    """An encoder that gives the first id of every text that holds `spoiled` as the id after it."""

    def __init__(self, encoder: Encoder, spoiled: str) -> None:
        self._encoder, self._spoiled = encoder, spoiled
        self.vocab_size, self.fingerprint = encoder.vocab_size, encoder.fingerprint
        self.eos_id, self.bos_id, self.pad_id = encoder.eos_id, encoder.bos_id, encoder.pad_id

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of each text, one of them changed where a text is spoiled."""
        flat, ends = self._encoder.encode(texts)
        flat, starts = flat.copy(), np.concatenate(([0], ends[:-1]))
        flat[starts[[self._spoiled in text for text in texts]]] += 1
        return Encoded(flat, ends)

    def decode(self, ids: np.ndarray) -> str:
        """Return the text of these ids."""
        return self._encoder.decode(ids)
