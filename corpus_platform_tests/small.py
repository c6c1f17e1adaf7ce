"""A small corpus of real text for tests: three shards in two crawls, and the whole chain over it.

The text is the help of the Python language cut at paragraphs, and a page in each of four other
scripts. It lies in topics/: that of the Python at hand would be another one with every patch version,
and so would each number that tests state. The second crawl brings a few new documents, and meets some
of the first again, as they were or with one more sentence. All gates pass on it.
"""

import functools
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd

from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.dedup_clusters import cluster_documents
from corpus_platform.stages.minhash_signatures import sign_documents
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.project import Project
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform.stages.shuffled_bins import publish_release
from corpus_platform.stages.tokenizer import train_tokenizer
from corpus_platform.storage.sources import discover

__all__ = ["SHARDS", "documents", "register", "run_chain", "write_shard", "write_small_corpus"]

Record = dict[str, str]

TOPICS = Path(__file__).parent / "topics" / "topics.jsonl.zst"
SHARDS = (
    "2026-40/part-00000.jsonl.zst",
    "2026-40/part-00001.jsonl.gz",
    "2026-44/part-00000.parquet",
)
SETTINGS = """\
storage: data
sources:
  - glob: source/crawl={crawl}/*
tokenizer: {vocab_size: 400, sample_bytes: 300000}
split: {validation: 0.02}
run: {workers: 1}
"""
PAGES = {
    "ru": "Библиотека на углу улицы открыта каждый день, кроме понедельника. В читальном зале тихо,"
    " и старые газеты лежат на длинном столе у окна. Летом сюда приходят студенты, а зимой —"
    " пожилые соседи, которым дома холодно и одиноко. Дежурная помнит всех по именам и всегда"
    " предлагает чай с лимоном тем, кто задержался до вечера.",
    "hi": "गाँव के बीच में एक पुराना कुआँ है जिसके चारों ओर नीम के पेड़ लगे हैं। सुबह होते ही"
    " लोग यहाँ पानी भरने आते हैं और दिन भर की बातें करते हैं। बच्चे पेड़ों की छाया में खेलते हैं और"
    " बूढ़े लोग चबूतरे पर बैठकर अख़बार पढ़ते हैं। बरसात के दिनों में कुएँ का पानी ऊपर तक आ जाता है"
    " और सारा आँगन हरा हो जाता है।",
    "zh": "城市边上的小河每年春天都会涨水，岸边的柳树也跟着发芽。老人们早晨在桥上散步，孩子们放学以后"
    "到河边捉小鱼。夏天的晚上，附近的居民把桌子搬到院子里，一边吃饭一边聊天。秋天树叶落满了小路，"
    "清洁工人每天要扫两次。冬天河面结了薄冰，人们站在岸上看鸭子在没有结冰的地方游来游去。新来的"
    "邻居常常问这条河叫什么名字，可是谁也说不清楚，因为地图上没有写，大家只叫它小河。去年政府在河边"
    "修了一条木板路，还装了路灯，散步的人比从前多了许多，连下雨的时候也有人打着伞慢慢地走。",
    "ar": "في وسط المدينة القديمة سوق صغيرة تباع فيها الأقمشة والتوابل والكتب المستعملة. يفتح التجار"
    " دكاكينهم بعد صلاة الفجر ويغلقونها عند غروب الشمس، ويعرف كل واحد منهم زبائنه بأسمائهم. في أيام"
    " العطلة يزدحم المكان بالعائلات القادمة من القرى المجاورة، ويشرب الناس الشاي في المقهى المقابل.",
}
MORE = "\n\nA later version of this page has one more sentence than the earlier one had."


def documents() -> list[Record]:
    """Return documents of different texts, none of them short; a few fail other rules."""
    return [dict(record) for record in _documents()]


@functools.cache
def _documents() -> tuple[Record, ...]:
    found = [{"text": page, "lang": lang, "id": f"page-{lang}"} for lang, page in PAGES.items()]
    for line in zstd.decompress(TOPICS.read_bytes()).splitlines():
        topic = json.loads(line)
        for number, text in enumerate(_pieces(topic["text"])):
            found.append({"text": text, "lang": "en", "id": f"{topic['name']}-{number}"})
    different = {d["text"]: {**d, "url": f"https://example.org/{d['id']}"} for d in found}
    return tuple(different.values())


def _pieces(text: str, *, chars: int = 1500) -> list[str]:
    """Cut a text at paragraphs; a rest that is too short for a document goes."""
    pieces, piece = [], ""
    for paragraph in text.split("\n\n"):
        piece = f"{piece}\n\n{paragraph}" if piece else paragraph
        if len(piece) >= chars:
            pieces.append(piece)
            piece = ""
    return [*pieces, piece] if len(piece) >= 500 else pieces


def write_small_corpus(folder: Path) -> Path:
    """Write shards and settings into a folder; return the path of its corpus.yaml."""
    first, new = documents()[:-20], documents()[-20:]
    middle = len(first) // 2
    again = first[10:20] + [{**d, "text": d["text"] + MORE} for d in first[30:40]]
    second = [*new, *({**d, "id": f"again-{d['id']}"} for d in again)]
    short = {"id": "short", "url": "https://example.org/short", "text": "Too short.", "lang": "en"}
    for shard, records in zip(
        SHARDS, (first[:middle], first[middle:], [*second, short]), strict=True
    ):
        crawl, name = shard.split("/")
        write_shard(folder / "source" / f"crawl={crawl}" / name, records)
    config = folder / "corpus.yaml"
    config.write_text(SETTINGS, encoding="utf-8")
    return config


def write_shard(path: Path, records: Sequence[Record]) -> None:
    """Write records in the container that the name of the file says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(records)), path)
        return
    data = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records).encode()
    packed = {".zst": zstd.compress, ".gz": lambda d: gzip.compress(d, mtime=0)}.get(path.suffix)
    path.write_bytes(packed(data) if packed else data)


def register(project: Project) -> list[str]:
    """Take the shards that the sources list now into the registry; return the keys of all."""
    project.registry.register(discover(project.settings.sources, project.settings.base))
    return list(project.shards())


def run_chain(project: Project) -> Path:
    """Make everything, one stage after the other in this process; return the release's folder."""
    shards = register(project)
    for shard in shards:
        fetch_shard(project, shard)
        clean_documents(project, shard)
        sign_documents(project, shard)
    cluster_documents(project)
    train_tokenizer(project)
    for shard in shards:
        pack_shard(project, shard)
    return publish_release(project).artifact.folder
