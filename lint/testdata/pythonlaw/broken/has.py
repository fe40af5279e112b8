"""What is used."""

THERE = 1
