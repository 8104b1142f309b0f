"""The wire: every message that crosses a boundary, frozen and versioned (design.md, Names on the wire).

`base` what all share, `entry` the journal's entry, `campaign` campaigns and their settings, `plan` Reversal Plans and
Records, `events` what the bus carries. `schemas/` is generated from these.
"""
