"""The controllers: each takes a room's decision again and again, and carries its memory from tick to tick.

They are typed on :class:`tonnage.control.world.World` and run in every world unchanged.
"""
