"""Pack languages: short explanations in six languages, each of them one kind of prompt. Pure.

A head knows the languages of its training data. In another one it may guess so badly that speculation loses,
which the mean over all prompts hides. The judge is that of the pack adversarial: the speed by kind.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from peagle_bench.load import WorkItem
from peagle_bench.packs.adversarial import judge
from peagle_bench.packs.pack import Make, Pack, PackWork
from peagle_bench.packs.texts import invented_name

UNITS = 8  #: prompts of each language
MAX_TOKENS = 64
#: A request by language, and what to explain. Written for this project; the names are invented.
_LANGUAGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "English": (
        "My name is {name}, and I come from {town}. Explain to me in three short sentences what {thing} is.",
        ("a bridge", "a library", "the moon", "rain", "bread", "music", "a clock", "a garden"),
    ),
    "German": (
        "Ich heiße {name} und komme aus {town}. Erkläre mir in drei kurzen Sätzen, was {thing} ist.",
        ("eine Brücke", "eine Bibliothek", "der Mond", "Regen", "Brot", "Musik", "eine Uhr", "ein Garten"),
    ),
    "Spanish": (
        "Me llamo {name} y soy de {town}. Explícame en tres frases cortas qué es {thing}.",
        ("un puente", "una biblioteca", "la luna", "la lluvia", "el pan", "la música", "un reloj"),
    ),
    "French": (
        "Je m'appelle {name} et je viens de {town}. Explique-moi en trois phrases courtes ce qu'est {thing}.",
        ("un pont", "une bibliothèque", "la lune", "la pluie", "le pain", "la musique", "un jardin"),
    ),
    "Russian": (
        "Меня зовут {name}, мой город - {town}. Объясни мне в трёх коротких предложениях, что такое {thing}.",
        ("мост", "библиотека", "луна", "дождь", "хлеб", "музыка", "часы", "сад"),
    ),
    "Chinese": (
        "我叫{name}。我来自{town}。请用三个短句告诉我什么是{thing}。",
        ("桥", "图书馆", "月亮", "雨", "面包", "音乐", "钟", "花园"),
    ),
}
LANGUAGES = tuple(_LANGUAGES)


def make(settings: Make) -> PackWork:
    """Make the prompts of each language, as chats."""
    items = []
    for number in range(settings.units or UNITS):
        for language, (request, things) in _LANGUAGES.items():
            rng = random.Random(f"languages {settings.seed} {number} {language}")
            town = invented_name(rng)
            text = request.format(name=invented_name(rng), town=town, thing=rng.choice(things))
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": MAX_TOKENS}
            items.append(WorkItem(f"{number:03}/{language}", {**body, "temperature": 0.0}, category=language))
    return PackWork(tuple(items))


PACK = Pack(
    name="languages",
    shows="short explanations in six languages",
    passes=(
        "no language is answered significantly slower than by plain decoding, and the answers are the"
        " target's own"
    ),
    finds="a head that knows too little of a language: slowdown below plain decoding, by how much",
    needs=("an arm without speculation", "a context of 512 tokens or more"),
    make=make,
    judge=judge,
    least_context=512,
)
