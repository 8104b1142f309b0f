"""Who plays, under which names and with which amounts: all of it follows from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from examples.deal.example import PEOPLE
from examples.table.example import PLAYERS
from examples.table.game import Creature, Scene

_FIGHTERS = ("Brunn", "Thora", "Garrick", "Ilsa", "Odo", "Hesta", "Marek", "Ysolde")
_PALADINS = ("Sera", "Aldous", "Branwen", "Cormac", "Elin", "Tancred")
_ROGUES = ("Wisp", "Finch", "Nyx", "Corvo", "Tamsin", "Quill")
_MONSTERS = ("Ghoul", "Bugbear", "Wight", "Manticore", "Harpy", "Troll")
_ADVENTURES = ("The Ashen Crown", "The Drowned Keep", "The Hollow King", "Salt and Thorns", "The Last Lantern")
_CUSTOMERS = ("Globex", "Initech", "Hooli", "Umbrella", "Vandelay", "Stark", "Tyrell", "Wonka")
_CONTACTS = ("Anna Berg", "Luis Ortega", "Mei Tan", "Noor Haddad", "Piotr Zielinski", "Grace Owusu")
_NEXT_STEPS = (
    "send the revised offer",
    "call legal on Thursday",
    "ask for the security review",
    "wait for their board",
)


@dataclass(frozen=True, slots=True)
class GameCast:
    """The people and creatures of the fighter's story. *blow* is what the fighter should never have taken."""

    scene: Scene
    fighter: Creature
    paladin: Creature
    rogue: Creature
    monster: Creature
    blow: int


@dataclass(frozen=True, slots=True)
class DealCast:
    """The people and records of the deal's story. Amounts are decimal strings."""

    seller: str
    teammate: str
    deal: str
    customer: str
    contact: str
    address: str
    order: str
    currency: str
    amount: str
    refund: str
    paid: str
    next_step: str
    days: int


def game_cast(seed: int) -> GameCast:
    """The cast of the fighter's story for *seed*."""
    random = Random(f"game {seed}")  # noqa: S311  names, not secrets
    players = random.sample(PLAYERS, 3)
    hp = random.randint(11, 39)
    fighter = _creature(random.choice(_FIGHTERS), hp + random.randint(3, 12), hp, players[0])
    paladin = _creature(random.choice(_PALADINS), random.randint(30, 45), 30, players[1])
    rogue = _creature(random.choice(_ROGUES), random.randint(20, 30), 20, players[2])
    monster = _creature(random.choice(_MONSTERS), 60, random.randint(25, 60), None)
    title = random.choice(_ADVENTURES)
    scene = Scene(f"{title.lower().replace(' ', '-')}-{seed}", title, [fighter, paladin, rogue, monster])
    return GameCast(scene, fighter, paladin, rogue, monster, blow=hp + random.randint(1, 9))


def deal_cast(seed: int) -> DealCast:
    """The cast of the deal's story for *seed*."""
    random = Random(f"deal {seed}")  # noqa: S311  names, not secrets
    seller, teammate = random.sample(PEOPLE, 2)
    customer, contact = random.choice(_CUSTOMERS), random.choice(_CONTACTS)
    number, refund = random.randint(100, 9999), random.randint(40, 480)
    return DealCast(
        seller=seller,
        teammate=teammate,
        deal=f"D-{number}",
        customer=customer,
        contact=contact,
        address=f"{contact.split()[0].lower()}.{seed}@{customer.lower()}.example",
        order=f"O-{random.randint(10_000, 99_999)}",
        currency=random.choice(("EUR", "USD", "GBP")),
        amount=f"{random.randint(12, 190) * 500}.00",
        refund=f"{refund}.00",
        paid=f"{refund + random.randint(50, 900)}.00",
        next_step=random.choice(_NEXT_STEPS),
        days=random.randint(3, 30),
    )


def _creature(name: str, max_hp: int, hp: int, player: str | None) -> Creature:
    return Creature(name.lower(), name, max_hp, min(hp, max_hp), player)
