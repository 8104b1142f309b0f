"""A table for tests: one adventure with a fighter, a paladin, a rogue and a ghoul."""

from examples.table.game import Creature, Scene

ADVENTURE = "ashen-crown"
FIGHTER, PALADIN, ROGUE, GHOUL = "brunn", "sera", "wisp", "ghoul"

SCENE = Scene(
    adventure=ADVENTURE,
    title="The Ashen Crown",
    creatures=[
        Creature(FIGHTER, "Brunn", 44, 31, "mira", {"hit dice": 5, "second wind": 1}),
        Creature(PALADIN, "Sera", 38, 38, "jonas", {"spell slots": 4}),
        Creature(ROGUE, "Wisp", 27, 20, "ada"),
        Creature(GHOUL, "Ghoul", 22, 22),
    ],
)

CALLS: dict[str, dict[str, object]] = {
    "end_adventure": {"achievements": ["Crown bearer", "First blood"]},
    "start_combat": {"initiative": [ROGUE, GHOUL, FIGHTER]},
    "modify_creature": {
        "creature": FIGHTER,
        "hp": 0,
        "addConditions": ["dead"],
        "deathSaves": {"successes": 0, "failures": 3},
    },
    "advance_chapter": {"episode": "The crypt"},
    "activate_dungeon": {"dungeon": "The drowned keep"},
    "end_combat": {},
    "rest": {"creature": FIGHTER, "kind": "long"},
    "consume_resource": {"creature": FIGHTER, "resource": "hit dice", "amount": 2, "why": "healing"},
    "damage_creature": {"creature": FIGHTER, "amount": 99, "kind": "fire"},
    "advance_turn": {},
    "reveal_fog": {"area": "crypt", "cells": [[0, 0], [0, 1], [4, 2]]},
    "write_memory": {"topic": "the innkeeper", "note": "She lied."},
    "grant_item": {"creature": ROGUE, "item": "lantern", "quantity": 2},
    "update_quest": {"quest": "crown", "progress": "They know where it lies.", "status": "open"},
    "move_token": {"creature": FIGHTER, "x": 7, "y": 3},
}
"""One call of each of the 15 tools that changes something."""
