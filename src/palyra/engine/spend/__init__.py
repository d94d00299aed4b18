"""Spend: planning a turn, reserving its cost, settling it (L9).

Does not own: the rules of budgets and routes (core).
"""
